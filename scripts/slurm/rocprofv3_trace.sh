#!/bin/bash -l
# Record a timeline of HIP calls, RCCL calls, copies and kernels: rocprofv3's runtime trace for Perfetto.
#   sbatch scripts/slurm/rocprofv3_trace.sh
#   sbatch --ntasks=8 scripts/slurm/rocprofv3_trace.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rocprofv3_trace.sh
#SBATCH --job-name=rocprofv3_trace --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need rocprofv3
smoke_test
# ROCm 10.0 may also write a database, *_results.db, but 10.1 doesn't.
step rocprofv3 --runtime-trace --output-format pftrace --output-directory "$RESULTS/profile" \
    --output-file "$RANK_NAME" -- "${TRAIN[@]}"
expect 'rank*_results.pftrace'
