#!/bin/bash -l
# HIP calls, kernels and copies of the whole run in one SQLite file per rank: RPD's tracer.
#   sbatch scripts/slurm/rpd.sh
#   sbatch --ntasks=8 scripts/slurm/rpd.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rpd.sh
#SBATCH --job-name=rpd --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need runTracer.sh
smoke_test
# A common name would be deleted and made anew by every rank.
# shellcheck disable=SC2016 # expanded on the rank
step bash -c 'exec runTracer.sh -o "$RESULTS/profile/rank${!RANK_VARIABLE}_pid$$.rpd" "$@"' _ "${TRAIN[@]}"
# runTracer.sh ends with 0 where it could not make its file.
expect 'rank*.rpd'
