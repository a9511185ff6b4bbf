#!/bin/bash -l
# Run the checklist for a slow training run as a Slurm job:
#     sbatch 14_check_list.sh
# Your program must contain the code block from 14_instrument_me.py. Fill in these lines and the two values below.
# PyTorch can time a step without the block: torch.optim.optimizer.register_optimizer_step_post_hook(function)
#SBATCH --account=my_project --partition=mi300x
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=7 --time=00:30:00
#SBATCH --job-name=check_list --output=%x_%j.out

program=(python train.py)
results=$PWD/check_list_$SLURM_JOB_ID

set -euo pipefail
mkdir -p "$results"
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
# If only Slurm can resolve the name, ask Slurm for the address.
getent hosts "$MASTER_ADDR" >/dev/null ||
    MASTER_ADDR=$(scontrol show node --oneliner "$MASTER_ADDR" | sed 's/.*NodeAddr=\([^ ]*\).*/\1/')
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT SLURM_GPU_BIND=none
# Since Slurm 22.05, srun doesn't inherit the cores per task from sbatch. Without this line, each rank has one core.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# name=... ranks=... step COMMAND: run COMMAND on this number of ranks, with the variables that torchrun would set, and
# print how long it took.
step() {
    local begin=$SECONDS
    export STEP_TIMER_DIR=$results/${name:?}
    mkdir -p "$STEP_TIMER_DIR"
    # shellcheck disable=SC2016 # each rank expands these variables
    srun --ntasks="${ranks:?}" bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
        exec "$@"' rank "$@" || { echo "$STEP_TIMER_DIR: failed" >&2; exit 1; }
    echo "$STEP_TIMER_DIR: $((SECONDS - begin)) s, $(find "$STEP_TIMER_DIR" -type f | wc -l) files"
}

# 1. Is the clock right? Run the unmodified program twice. The times that it prints should agree with these seconds.
name=clock_1 ranks=1 step "${program[@]}"
name=clock_2 ranks=1 step "${program[@]}"

# 2. Is the GPU the limit? Record power and activity during the runs. If the power is near idle, the GPU waits.
if command -v amd-smi >/dev/null; then
    amd-smi monitor -p -u -m -w 1 -i 3600 --csv >"$results/smi.csv" &
    monitor=$!
fi

# 3. Where does the time in a step go? Time its parts without a profiler, in five repeats to see how much they differ.
for repeat in 1 2 3 4 5; do name=times_$repeat ranks=1 STEP_TIMER="times" step "${program[@]}"; done
[ -z "${monitor:-}" ] || kill "$monitor" 2>/dev/null || echo "amd-smi ended early. See smi.csv." >&2

# 4. Which operators does the largest part contain, and how many? Trace three steps.
name=trace ranks=1 STEP_TIMER="trace" step "${program[@]}"

# 5. Which kernels run, how often and for how long?
if command -v rocprofv3 >/dev/null; then
    name=kernels ranks=1 step rocprofv3 --kernel-trace --stats --output-format csv \
        --output-directory "$results/kernels" --output-file 'rank%env{RANK}%_pid%pid%' -- "${program[@]}"
fi

# 6. Which rank do the others wait for? Trace all ranks.
name=ranks ranks=$SLURM_NTASKS STEP_TIMER="trace" step "${program[@]}"

# 7. Next, test one fix at a time: run step 3 with both versions alternately in one job. Draw the order in each round,
# for example with `shuf -e before after`, because a growing load slows the version that runs second. Check that the
# losses are the same and that the new version is faster beyond doubt.
find "$results" -type f | sort
