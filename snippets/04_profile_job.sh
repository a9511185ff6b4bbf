#!/bin/bash -l
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8 --time=00:15:00 --output=%x_%j.out
# Kernel trace of every rank of any program, with rocprofv3 (ROCm 7.0 and later), on Slurm:
#     sbatch 04_profile_job.sh train.py --steps 20
# A few steps are enough. Site values, such as --partition, and `module load` lines go above. RESULTS names the
# folder in which each rank writes rank<N>_pid<M>_kernel_trace.csv and more.
set -euo pipefail

if (($# == 0)); then
    echo "usage: sbatch $0 PROGRAM.py [ARGUMENTS...]" >&2
    exit 2
fi
results=${RESULTS:-profile_${SLURM_JOB_ID:?submit this script with sbatch}}

# torch.distributed needs a meeting point. Two jobs on one node must not choose the same port.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${hosts%%$'\n'*} MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))

# MIOpen's databases are SQLite files, which fail on many network file systems. mkdir runs once on every node.
MIOPEN_USER_DB_PATH=${TMPDIR:-/tmp}/miopen-$(id -un)-$SLURM_JOB_ID
export MIOPEN_USER_DB_PATH MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 mkdir -p "$MIOPEN_USER_DB_PATH"
mkdir -p "$results"

# The tool stands inside srun: around it, it would watch srun. Rank and process keep the files of the ranks apart.
# RANK and the like are what torch.distributed reads, and are known only inside a task: hence the single quotes.
# shellcheck disable=SC2016
srun bash -c '
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    exec "$@"
' task rocprofv3 --kernel-trace --marker-trace --memory-copy-trace --stats --output-format csv \
    --output-directory "$results" --output-file 'rank%rank%_pid%pid%' -- python "$@"

echo "Results: $results"
