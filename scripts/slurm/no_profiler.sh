#!/bin/bash -l
# Run the training without a profiler, to get the step time that every profile is compared with.
#   sbatch scripts/slurm/no_profiler.sh
#   sbatch --ntasks=8 scripts/slurm/no_profiler.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/no_profiler.sh
#SBATCH --job-name=no_profiler --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

step "${TRAIN[@]}"
expect 'metrics_rank*.jsonl'
