#!/bin/bash -l
# Record HIP calls, kernels and copies of the whole run with RPD's tracer, in one SQLite file per rank.
#   sbatch scripts/slurm/rpd.sh
#   sbatch --ntasks=8 scripts/slurm/rpd.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rpd.sh
#SBATCH --job-name=rpd --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need runTracer.sh
smoke_test
# Use one name per rank, because every rank would delete a shared file and create it again.
# shellcheck disable=SC2016 # expanded on the rank
step bash -c 'exec runTracer.sh -o "$RESULTS/profile/rank${!RANK_VARIABLE}_pid$$.rpd" "$@"' _ "${TRAIN[@]}"
# runTracer.sh exits with 0 even if it couldn't create its file.
expect 'rank*.rpd'
