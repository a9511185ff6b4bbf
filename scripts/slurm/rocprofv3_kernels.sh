#!/bin/bash -l
# Show which kernels run, how often and how long: rocprofv3's kernel trace with statistics, as CSV.
#   sbatch scripts/slurm/rocprofv3_kernels.sh
#   sbatch --ntasks=8 scripts/slurm/rocprofv3_kernels.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rocprofv3_kernels.sh
#SBATCH --job-name=rocprofv3_kernels --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need rocprofv3
smoke_test
# Name the format, because the default is csv up to ROCm 6.4 and a database in 7.0 and newer.
step rocprofv3 --stats --kernel-trace --output-format csv --output-directory "$RESULTS/profile" \
    --output-file "$RANK_NAME" -- "${TRAIN[@]}"
expect 'rank*_kernel_stats.csv'
