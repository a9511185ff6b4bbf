#!/bin/bash -l
# Record operators, shapes and kernels of three steps with PyTorch's profiler, one Chrome trace per rank.
#   sbatch scripts/slurm/torch_profiler.sh
#   sbatch --ntasks=8 scripts/slurm/torch_profiler.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/torch_profiler.sh
#SBATCH --job-name=torch_profiler --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

smoke_test
step "${TRAIN[@]}" --torch-profile --profile-all-ranks --record-shapes
expect 'trace_rank*.json.gz'
