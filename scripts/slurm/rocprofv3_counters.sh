#!/bin/bash -l
# Collect raw hardware counters of every kernel in one pass, as CSV: waves and vector instructions.
#   sbatch scripts/slurm/rocprofv3_counters.sh
#   sbatch --ntasks=8 scripts/slurm/rocprofv3_counters.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rocprofv3_counters.sh
#SBATCH --job-name=rocprofv3_counters --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need rocprofv3
smoke_test
step rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU --output-format csv --output-directory "$RESULTS/profile" \
    --output-file "$RANK_NAME" -- "${TRAIN[@]}"
expect 'rank*_counter_collection.csv'
