#!/bin/bash
# Submits one job script with the site's values and prints the job's number.
#   scripts/slurm/submit.sh rocprofv3_kernels --ntasks=8
#   scripts/slurm/submit.sh rocprof_compute_analyze --dependency=afterok:17 -- 17     (behind --: for the script)
set -euo pipefail
COURSE_DIR_HERE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=/dev/null
source "$COURSE_DIR_HERE/scripts/slurm/site.sh"
script=$COURSE_DIR/scripts/slurm/${1:?say which job script}.sh
shift
[ -f "$script" ] || { echo "submit: there is no job script $script" >&2; exit 2; }
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
# Submitted from within a job, such as a notebook's, the new one must not inherit that job's shape.
for variable in "${!SLURM_@}"; do
    case $variable in SLURM_CONF | SLURM_GPU_BIND) ;; *) unset "$variable" ;; esac
done
mkdir -p "$RESULTS_DIR"
answer=$(sbatch --parsable --output="$RESULTS_DIR/%x_%j.out" "${options[@]}" "$script" "${@:2}") || {
    echo "submit: Slurm took no job; its reason is above, the site's values are in site.env" >&2
    exit 2
}
# On sites with several clusters the answer is NUMBER;CLUSTER.
echo "${answer%%;*}"
