#!/bin/bash -l
# Test everything on this GPU in half an hour, and write one archive with the results. See make gpu-check.
#   sbatch scripts/slurm/gpu_check.sh
#SBATCH --job-name=gpu_check --output=%x_%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=16 --time=00:40:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

cd "$COURSE_DIR" || exit 2
python -m tools.gpu_check --folder "$RESULTS/gpu_check"
