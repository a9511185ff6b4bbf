#!/bin/bash -l
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8 --time=00:15:00 --output=%x_%j.out
# Record a kernel trace of every rank of any program with rocprofv3 (ROCm 6.4 and newer) on Slurm:
#     sbatch 04_profile_job.sh train.py --steps 20
# A few steps are enough. Put site values, such as --partition, and `module load` lines above. RESULTS names the
# folder in which each rank writes rank<N>_pid<M>_kernel_trace.csv and more.
set -euo pipefail

if (($# == 0)); then
    echo "usage: sbatch $0 PROGRAM.py [ARGUMENTS...]" >&2
    exit 2
fi
results=${RESULTS:-profile_${SLURM_JOB_ID:?submit this script with sbatch}}

mkdir -p "$results"

# torch.distributed connects the ranks at the first node. Use the node's address if only Slurm can resolve its name. Two
# jobs on one node need different ports.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
getent hosts "$MASTER_ADDR" >/dev/null ||
    MASTER_ADDR=$(scontrol show node --oneliner "$MASTER_ADDR" | sed 's/.*NodeAddr=\([^ ]*\).*/\1/')
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
# Each rank must see all GPUs, because it picks the GPU of its local rank. If one rank fails, the others can still write.
export MASTER_ADDR MASTER_PORT SLURM_GPU_BIND=none SLURM_KILL_BAD_EXIT=0
# Since Slurm 22.05, srun ignores sbatch's cores per task. Without this line, each rank has one core.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# The tool comes after srun, because otherwise it would profile srun. Rank and process ID keep the ranks' files apart.
# torch.distributed reads RANK and so on, which are known only inside a task, hence the single quotes.
# MIOpen's databases are SQLite files, which fail on many network file systems, so they stay on the node's own disk.
# shellcheck disable=SC2016
srun bash -c '
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    export MIOPEN_USER_DB_PATH=${TMPDIR:-/tmp}/miopen_${SLURM_JOB_ID}_$LOCAL_RANK
    export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
    mkdir -p "$MIOPEN_USER_DB_PATH"
    exec "$@"
' task rocprofv3 --kernel-trace --marker-trace --memory-copy-trace --stats --output-format csv \
    --output-directory "$results" --output-file 'rank%rank%_pid%pid%' -- python "$@"

files=$(find "$results" -name 'rank*_kernel_trace.csv' | wc -l)
echo "$files kernel traces of $SLURM_NTASKS ranks in $results"
[ "$files" -ge "$SLURM_NTASKS" ] # if ranks share a name, the last one overwrites the others
