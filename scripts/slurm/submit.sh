#!/bin/bash
# Submit one job script with the site's values and print the job number.
#   scripts/slurm/submit.sh rocprofv3_kernels --ntasks=8
#   scripts/slurm/submit.sh rocprof_compute_analyze --dependency=afterok:17 -- 17   (after --: the script's arguments)
set -euo pipefail
COURSE_DIR_HERE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=/dev/null
source "$COURSE_DIR_HERE/scripts/slurm/site.sh"
script=$COURSE_DIR/scripts/slurm/${1:?name a job script, for example rocprofv3_kernels}.sh
shift
[ -f "$script" ] || { echo "submit: can't find the job script $script" >&2; exit 2; }
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
# If this runs inside a job, for example in a notebook, the new job must not inherit that job's size.
for variable in "${!SLURM_@}"; do
    case $variable in SLURM_CONF | SLURM_GPU_BIND) ;; *) unset "$variable" ;; esac
done
mkdir -p "$RESULTS_DIR"
answer=$(sbatch --parsable --output="$RESULTS_DIR/%x_%j.out" "${options[@]}" "$script" "${@:2}") || {
    echo "submit: Slurm rejected the job for the reason above. The site's values are in site.env" >&2
    exit 2
}
# On sites with several clusters, sbatch prints NUMBER;CLUSTER.
echo "${answer%%;*}"
