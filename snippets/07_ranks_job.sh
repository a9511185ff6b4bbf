#!/bin/bash -l
# Several ranks of any PyTorch program under Slurm, with a trace for each rank:
#     sbatch 07_ranks_job.sh
# Fill in these lines, then the values below. Slurm reads the lines before the shell, so don't use variables in them.
#SBATCH --account=my_project --partition=mi300x
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=7 --time=00:15:00
#SBATCH --job-name=ranks --output=%x_%j.out

program=(python train.py)
results=$PWD/ranks_$SLURM_JOB_ID
# The tool that wraps each rank, and the file that it must write for each rank. Use tool=() for a program that profiles itself.
tool=(rocprofv3 --kernel-trace --memory-copy-trace --marker-trace --output-format csv
    --output-directory "$results" --output-file 'rank%env{RANK}%_pid%pid%' --)
expected='rank*_kernel_trace.csv'

set -euo pipefail
mkdir -p "$results"
# Ranks connect on the first node, at a port that only this job uses. Each rank sees all GPUs and uses the GPU of its
# local rank.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
# If only Slurm knows the name of the node, ask Slurm for its address.
getent hosts "$MASTER_ADDR" >/dev/null ||
    MASTER_ADDR=$(scontrol show node --oneliner "$MASTER_ADDR" | sed 's/.*NodeAddr=\([^ ]*\).*/\1/')
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
# A failed rank must not end the others while they write their traces.
export MASTER_ADDR MASTER_PORT SLURM_GPU_BIND=none SLURM_KILL_BAD_EXIT=0 PROFILE_DIR=$results STEP_TIMER_DIR=$results
# Since Slurm 22.05, srun no longer inherits the cores per task from sbatch. Without this line, each rank has one core.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Run a command on every rank, with the variables that torchrun would set. MIOpen's databases stay on the node's local
# disk, because network file systems can't lock them.
on_every_rank() {
    # shellcheck disable=SC2016 # each rank expands these variables
    srun bash -c '
        export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
        export MIOPEN_USER_DB_PATH=${TMPDIR:-/tmp}/miopen_${SLURM_JOB_ID}_$LOCAL_RANK
        export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
        mkdir -p "$MIOPEN_USER_DB_PATH"
        exec "$@"' rank "$@"
}

# If the ranks can't connect, fail after a minute, before profiling.
on_every_rank python -c '
import datetime, os, torch, torch.distributed as dist
gpu = torch.cuda.is_available()
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
dist.init_process_group("nccl" if gpu else "gloo", timeout=datetime.timedelta(seconds=60))
ones = torch.ones(1, device="cuda" if gpu else "cpu")
dist.all_reduce(ones)
assert int(ones) == dist.get_world_size()
dist.destroy_process_group()' || { echo "The ranks didn't connect within a minute. Try setting NCCL_SOCKET_IFNAME." >&2; exit 1; }

on_every_rank "${tool[@]}" "${program[@]}"

files=$(find "$results" -name "$expected" | wc -l)
echo "$files files $expected in $results, $SLURM_NTASKS ranks"
[ "$files" -ge "$SLURM_NTASKS" ] # fails if several ranks wrote to the same name
