#!/bin/bash -l
# Print the tables of a finished rocprof_compute_profile job. The argument is its number. This job doesn't need a GPU.
#   sbatch scripts/slurm/rocprof_compute_analyze.sh
#SBATCH --job-name=rocprof_compute_analyze --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need_one_rank "rocprof-compute analyze is one process"
[ -z "${ANALYZE_VENV:-}" ] || PATH=$ANALYZE_VENV/bin:$PATH
need rocprof-compute
job=${1:?usage: sbatch rocprof_compute_analyze.sh NUMBER_OF_THE_PROFILE_JOB}
machine=$(find "$RESULTS_DIR" -path "*rocprof_compute_profile_${job}[/_]*" -name sysinfo.csv | sort | tail -n 1)
[ -n "$machine" ] || fail "can't find a workload of job $job in $RESULTS_DIR. Submit rocprof_compute_profile.sh first"
step rocprof-compute analyze -p "$(dirname "$machine")" -b 2 | tee "$RESULTS/analysis.txt"
