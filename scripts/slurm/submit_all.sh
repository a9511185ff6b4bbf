#!/bin/bash
# Submit every job, first for one process and then for RANKS ranks. The jobs run one after the other. A second call
# submits only the jobs that are missing or failed.
#   scripts/slurm/submit_all.sh              submit and print the table
#   scripts/slurm/submit_all.sh --status     print the table
#   scripts/slurm/submit_all.sh --wait       submit, wait for all jobs and print the table; exit with 1 if a job failed
# You can set RANKS (default 8) and NODES (default 1) in the environment.
set -euo pipefail
COURSE_DIR_HERE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=/dev/null
source "$COURSE_DIR_HERE/scripts/slurm/site.sh"
RANKS=${RANKS:-8} NODES=${NODES:-1}
single=(no_profiler torch_profiler rocprofv3_kernels rocprofv3_trace rocprofv3_counters rocprof_sys_trace
    rocprof_sys_callstack rpd omnistat debug_agent rocprof_compute_profile rocprof_compute_analyze)
many=(no_profiler torch_profiler rocprofv3_kernels rocprofv3_trace rocprofv3_counters rocprof_sys_trace
    rocprof_sys_callstack rpd omnistat debug_agent)
submitted=$RESULTS_DIR/submitted.txt

# number_of SCRIPT RANKS: print the last job number, or nothing if the job was never submitted.
number_of() { sed -n "s/^$1 $2 //p" "$submitted" | tail -n 1; }

# folder_of NUMBER: print the folder of the job's last start.
folder_of() { find "$RESULTS_DIR" -maxdepth 1 -type d '(' -name "*_$1" -o -name "*_$1_restart*" ')' | sort -V | tail -n 1; }

state_of() {
    local queued folder
    queued=$(squeue --noheader --job "$1" --format=%T 2>/dev/null || true)
    folder=$(folder_of "$1")
    if [ -n "$queued" ]; then
        echo "$queued"
    elif [ -z "$folder" ] || [ ! -f "$folder/exit_code" ]; then
        echo "NOT RUN"
    elif [ "$(cat "$folder/exit_code")" = 0 ]; then
        echo DONE
    else
        echo "FAILED $(cat "$folder/exit_code")"
    fi
}

is_settled() { [[ $(state_of "$1") =~ ^(DONE|PENDING|RUNNING|CONFIGURING|COMPLETING)$ ]]; }

# submit_one SCRIPT RANKS NODES: submit the job to run after the previous one, if the run without a profiler succeeds.
submit_one() {
    local known number arguments=() conditions=() gpus=()
    known=$(number_of "$1" "$2")
    if [ -n "$known" ] && is_settled "$known"; then
        previous=$known
    else
        [ -z "$previous" ] || conditions+=("afterany:$previous")
        [ "$1" = no_profiler ] || conditions+=("afterok:$(number_of no_profiler 1)")
        if [ "$1" = rocprof_compute_analyze ]; then
            conditions+=("afterok:$(number_of rocprof_compute_profile 1)")
            arguments=(-- "$(number_of rocprof_compute_profile 1)")
        fi
        if [ "$2" = 1 ] && [ -n "${SBATCH_GPUS_PER_NODE:-}" ]; then
            # Request one GPU for one process, with the site's GPU type if set (mi300x:8). This overrides the variable.
            gpus=(--gpus-per-node="${SBATCH_GPUS_PER_NODE%"${SBATCH_GPUS_PER_NODE##*:}"}1")
        fi
        number=$("$COURSE_DIR/scripts/slurm/submit.sh" "$1" --ntasks="$2" --nodes="$3" --kill-on-invalid-dep=yes \
            ${gpus:+"${gpus[@]}"} ${conditions:+--dependency="$(IFS=,; echo "${conditions[*]}")"} \
            ${arguments:+"${arguments[@]}"})
        echo "$1 $2 $number" >>"$submitted"
        previous=$number
    fi
}

submit_missing() {
    local script previous=
    for script in "${single[@]}"; do submit_one "$script" 1 1; done
    for script in "${many[@]}"; do submit_one "$script" "$RANKS" "$NODES"; done
}

table() {
    local script ranks number folder files
    {
        echo "script ranks job state files folder"
        sort -u -k1,2 "$submitted" | while read -r script ranks _; do
            number=$(number_of "$script" "$ranks")
            folder=$(folder_of "$number")
            files=$([ -z "$folder" ] || find "$folder" -type f | wc -l)
            echo "$script $ranks $number $(state_of "$number" | tr ' ' :) ${files:-0} ${folder:--}"
        done
    } | column -t
}

wait_for_all() {
    while squeue --noheader --user "$(id -un)" --format=%A | grep -qwFf <(cut -d ' ' -f 3 "$submitted"); do
        sleep "${POLL_SECONDS:-10}"
    done
}

mkdir -p "$RESULTS_DIR"
touch "$submitted"
[ "${1:-}" = --status ] || submit_missing
[ "${1:-}" != --wait ] || wait_for_all
table | tee "$RESULTS_DIR/table.txt"
[ "${1:-}" != --wait ] || ! grep -qE 'FAILED|NOT:RUN' "$RESULTS_DIR/table.txt"
