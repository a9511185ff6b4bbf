#!/bin/bash -l
# The check list for a slow training, as a job for Slurm:
#     sbatch 14_check_list.sh
# The program holds the block of 14_instrument_me.py. Fill in these lines, and the two values below.
# Torch alone times a step by torch.optim.optimizer.register_optimizer_step_post_hook(function), without the block.
#SBATCH --account=my_project --partition=mi300x
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=7 --time=00:30:00
#SBATCH --job-name=check_list --output=%x_%j.out

program=(python train.py)
results=$PWD/check_list_$SLURM_JOB_ID

set -euo pipefail
mkdir -p "$results"
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
# A name that only Slurm knows has an address that it knows, too.
getent hosts "$MASTER_ADDR" >/dev/null ||
    MASTER_ADDR=$(scontrol show node --oneliner "$MASTER_ADDR" | sed 's/.*NodeAddr=\([^ ]*\).*/\1/')
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT SLURM_GPU_BIND=none
# Since Slurm 22.05 srun no longer takes the cores of a task from sbatch: without this each rank has one core.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# name=... ranks=... step COMMAND: runs it on so many ranks, with the variables that torchrun would set; says how long.
step() {
    local begin=$SECONDS
    export STEP_TIMER_DIR=$results/${name:?}
    mkdir -p "$STEP_TIMER_DIR"
    # shellcheck disable=SC2016 # the variables are those of the rank
    srun --ntasks="${ranks:?}" bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
        exec "$@"' rank "$@" || { echo "$STEP_TIMER_DIR: failed" >&2; exit 1; }
    echo "$STEP_TIMER_DIR: $((SECONDS - begin)) s, $(find "$STEP_TIMER_DIR" -type f | wc -l) files"
}

# 1. Is the clock right? The whole run as it is, twice. What it prints about itself should agree with these seconds.
name=clock_1 ranks=1 step "${program[@]}"
name=clock_2 ranks=1 step "${program[@]}"

# 2. Is the GPU the limit at all? Power and activity beside the run: near idle power means that it waits.
if command -v amd-smi >/dev/null; then
    amd-smi monitor -p -u -m -w 1 -i 3600 --csv >"$results/smi.csv" &
    monitor=$!
fi

# 3. Where does a step go? Times of its parts without a profiler: five repeats, to see how much they differ.
for repeat in 1 2 3 4 5; do name=times_$repeat ranks=1 STEP_TIMER="times" step "${program[@]}"; done
[ -z "${monitor:-}" ] || kill "$monitor" 2>/dev/null || echo "amd-smi had ended early, see smi.csv" >&2

# 4. Which operators does the largest part hold, and how many of them? A trace of three steps.
name=trace ranks=1 STEP_TIMER="trace" step "${program[@]}"

# 5. Which kernels, how often, how long?
if command -v rocprofv3 >/dev/null; then
    name=kernels ranks=1 step rocprofv3 --kernel-trace --stats --output-format csv \
        --output-directory "$results/kernels" --output-file 'rank%env{RANK}%_pid%pid%' -- "${program[@]}"
fi

# 6. Who waits for whom? All ranks, a trace each.
name=ranks ranks=$SLURM_NTASKS STEP_TIMER="trace" step "${program[@]}"

# 7. Then one cure at a time: step 3 with both programs in one job, in turns. Draw who is first in each, as by
# `shuf -e before after`: where the load grows, the second one loses. The same losses, and quicker beyond doubt?
find "$results" -type f | sort
