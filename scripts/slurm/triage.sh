#!/bin/bash -l
# What limits a program as it is: the training, or a command of yours, with tidyprof's `run` in front of each rank.
#   sbatch scripts/slurm/triage.sh
#   sbatch --ntasks=8 scripts/slurm/triage.sh python "$PWD/train.py"                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/triage.sh python "$PWD/train.py"
#SBATCH --job-name=triage --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

smoke_test
# A trace begins after 30 steps, and as many as 20 are timed after it, whatever the site's options ask for.
[ $# -gt 0 ] || set -- "${TRAIN[@]}" --max-steps 60
# The first rank waits for the files of the others, and reports.
step python -m tidyprof run --out "$RESULTS/profile" --json "$RESULTS/verdict.json" -- "$@"
expect 'trace_rank*.json.gz'
