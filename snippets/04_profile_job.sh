#!/bin/bash -l
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8 --time=00:15:00 --output=%x_%j.out
# Kernel trace of every rank of any program, with rocprofv3 (ROCm 6.4 and later), on Slurm:
#     sbatch 04_profile_job.sh train.py --steps 20
# A few steps are enough. Site values, such as --partition, and `module load` lines go above. RESULTS names the
# folder in which each rank writes rank<N>_pid<M>_kernel_trace.csv and more.
set -euo pipefail

if (($# == 0)); then
    echo "usage: sbatch $0 PROGRAM.py [ARGUMENTS...]" >&2
    exit 2
fi
results=${RESULTS:-profile_${SLURM_JOB_ID:?submit this script with sbatch}}

mkdir -p "$results"

# torch.distributed needs a meeting point: the first node, or its address where only Slurm knows the name. Two jobs on
# one node must not choose the same port.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
getent hosts "$MASTER_ADDR" >/dev/null ||
    MASTER_ADDR=$(scontrol show node --oneliner "$MASTER_ADDR" | sed 's/.*NodeAddr=\([^ ]*\).*/\1/')
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
# Each rank shall see all GPUs and take that of its local rank; one that fails shall not end the others as they write.
export MASTER_ADDR MASTER_PORT SLURM_GPU_BIND=none SLURM_KILL_BAD_EXIT=0
# Since Slurm 22.05 srun no longer takes the cores of a task from sbatch: without this each rank has one core.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# The tool stands inside srun: around it, it would watch srun. Rank and process keep the files of the ranks apart.
# RANK and the like are what torch.distributed reads, and are known only inside a task: hence the single quotes.
# MIOpen's databases are SQLite files, which fail on many network file systems: they stay on the node's own disk.
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
[ "$files" -ge "$SLURM_NTASKS" ] # with one name for several ranks the last one has replaced the others
