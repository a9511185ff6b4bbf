#!/bin/bash -l
# Find out what limits the training run or your own command, which runs unmodified under `tidyprof run` on each rank.
#   sbatch scripts/slurm/triage.sh
#   sbatch --ntasks=8 scripts/slurm/triage.sh python "$PWD/train.py"                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/triage.sh python "$PWD/train.py"
#SBATCH --job-name=triage --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

smoke_test
# The trace starts after 30 steps, and up to 20 steps are timed after it, whatever the site's options request.
[ $# -gt 0 ] || set -- "${TRAIN[@]}" --max-steps 60
# The first rank waits for the other ranks' files and prints the report.
step python -m tidyprof run --out "$RESULTS/profile" --json "$RESULTS/verdict.json" -- "$@"
expect 'trace_rank*.json.gz'
