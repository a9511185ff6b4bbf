#!/bin/bash
# What all job scripts share. A job script sources it and then says: need, smoke_test, step, expect.
COURSE_DIR_HERE=${SLURM_SUBMIT_DIR:-$PWD}
JOB_NAME=${SLURM_JOB_NAME:-$(basename "$0" .sh)}
JOB_ID=${SLURM_JOB_ID:-$(date +%Y%m%d-%H%M%S)-$$}

say() { echo "[$JOB_NAME $JOB_ID] $*"; }

# Ends the job with a mistake that its user can put right.
fail() {
    REFUSED=yes
    say "refused: $*" >&2
    exit 2
}

# Left-overs of the submitting shell would be taken for this job's ranks and software.
unset NPROCS RANK WORLD_SIZE LOCAL_RANK OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PALS_RANKID VIRTUAL_ENV PYTHONHOME
# shellcheck source=/dev/null
source "${COURSE_DIR:-$COURSE_DIR_HERE}/scripts/slurm/site.sh"
set -euo pipefail

LAUNCHER=${LAUNCHER:-srun}
NTASKS=${SLURM_NTASKS:-${NTASKS:-1}}
NODES=${SLURM_JOB_NUM_NODES:-1}
NODE_TMP=${NODE_TMP:-${TMPDIR:-/tmp}}
SMOKE_TEST_SECONDS=${SMOKE_TEST_SECONDS:-60}
# A folder of its own for each job and each time it is requeued; rank and process number keep the files in it apart.
RESULTS=$RESULTS_DIR/${JOB_NAME}_$JOB_ID${SLURM_RESTART_COUNT:+_restart$SLURM_RESTART_COUNT}
TRAIN_OPTIONS=${TRAIN_OPTIONS:-}
read -ra train_options <<<"${TRAIN_OPTIONS//$'\n'/ }"
# shellcheck disable=SC2034 # job scripts use it
TRAIN=(python -m cifar_train --data "$DATA" --data-path "$DATA_PATH" --run-dir "$RESULTS/train" "${train_options[@]}")

export RESULTS
# shellcheck source=/dev/null
source "$COURSE_DIR/scripts/slurm/launch.sh"

prepare() {
    local available
    mkdir -p "$RESULTS/profile" || fail "$RESULTS cannot be made; set RESULTS_DIR to a folder that all nodes can write"
    available=$(($(df --output=avail -k "$RESULTS" | tail -n 1) / 1024))
    [ "$available" -ge "${FREE_MB:-2000}" ] ||
        fail "$RESULTS has $available MB free, less than FREE_MB=${FREE_MB:-2000}; free some space or set RESULTS_DIR"
    if [ "$DATA" = cifar100 ] && [ ! -f "$DATA_PATH/cifar-100-python/train" ]; then
        fail "CIFAR-100 is not in $DATA_PATH; on the login node: scripts/slurm/download_data.sh, or set DATA=synthetic"
    fi
    meet
    # MIOpen locks its databases, which network file systems cannot: each node keeps its own.
    export MIOPEN_USER_DB_PATH=$NODE_TMP/${USER:-$(id -un)}-miopen-$JOB_ID
    export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
    on_every_node mkdir -p "$MIOPEN_USER_DB_PATH"
    NODE_CACHE=$MIOPEN_USER_DB_PATH
}

# Rank 0 is on the first host of the list; the port comes from the job, so that two jobs on a node do not meet.
meet() {
    local host=localhost
    if [ -n "${SLURM_JOB_NODELIST:-}" ]; then
        host=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
        host=${host%%$'\n'*} # not by head, whose end would be scontrol's failure
        # A name that only Slurm knows has an address that it knows, too.
        getent hosts "$host" >/dev/null ||
            host=$(scontrol show node --oneliner "$host" | sed 's/.*NodeAddr=\([^ ]*\).*/\1/')
    fi
    export MASTER_ADDR=$host MASTER_PORT=$((20000 + ${SLURM_JOB_ID:-$$} % 10000))
}

on_every_node() {
    if [ -n "${SLURM_JOB_ID:-}" ]; then
        srun --nodes="$NODES" --ntasks="$NODES" --ntasks-per-node=1 --quiet "$@"
    else
        "$@"
    fi
}

# Seconds until the job's time limit; fails where there is none.
seconds_left() {
    local end
    end=$(squeue --noheader --job "${SLURM_JOB_ID:-0}" --format=%e 2>/dev/null) && [ -n "$end" ] || return 1
    end=$(date --date "$end" +%s 2>/dev/null) || return 1
    echo $((end - $(date +%s)))
}

# Whether the ranks have been told to stop: by the headers' --signal=TERM@180, which Slurm may send a minute early.
is_nearly_over() {
    local left
    left=$(seconds_left) || true # nothing where there is no limit, and where the signal ended the question, too
    [ "${left:-999}" -lt 245 ]
}

# need TOOL...: the job's programs are here.
need() {
    local tool
    for tool in "$@"; do
        [ -n "${CONTAINER:-}" ] || command -v "$tool" >/dev/null ||
            fail "$tool is not on $(hostname); add its module to MODULES in site.env, or set REPLAY_TOOLS=yes to rehearse"
    done
}

need_one_rank() { [ "$NTASKS" = 1 ] || fail "$*; submit it with --ntasks=1"; }

# Ranks that cannot meet shall cost a minute, not a profile.
smoke_test() {
    if [ "$NTASKS" -gt 1 ] && [ "$SMOKE_TEST_SECONDS" -gt 0 ]; then
        SLURM_KILL_BAD_EXIT=1 step python "$COURSE_DIR/scripts/slurm/all_reduce.py" "$SMOKE_TEST_SECONDS" ||
            fail "the ranks could not add a number within $SMOKE_TEST_SECONDS s; their own lines above say what to check"
    fi
}

# expect PATTERN: every rank wrote a file of that name, somewhere below the folder of results.
expect() {
    local found
    found=$(find "$RESULTS" -name "$1" | wc -l)
    if [ "$found" -lt "$NTASKS" ]; then
        say "failed: $found files $1 in $RESULTS, not one for each of $NTASKS ranks; the tool says above why" >&2
        exit 1
    fi
}

# The last line of every job, and its exit code in a file, for sites without an accounting database.
finish() {
    local code=$? text
    trap - EXIT
    case $code in
    0) text="done in $SECONDS s: $(find "$RESULTS" -type f | wc -l) files in $RESULTS" ;;
    2) text="failed: the line above says what to change (exit code 2)" ;;
    137) text="failed: a rank was killed, mostly for lack of memory (exit code 137); 'srun: error' above names it" ;;
    *) text="failed: exit code $code; the first message above tells why; results are in $RESULTS" ;;
    esac
    # scancel signals this script too; before the time limit only the ranks are told (--signal in the header).
    if [ "$STOPPED" = yes ] || { [ "$code" != 0 ] && [ "$REFUSED" = no ] && is_nearly_over; }; then
        code=143
        text="stopped by SIGTERM: time limit, scancel or requeue; what was ready is in $RESULTS"
    fi
    [ "$REFUSED" = yes ] || say "$text"
    (echo "$code" >"$RESULTS/exit_code") 2>/dev/null || true
    # A stopped job has no time for another step.
    [ "$STOPPED" = yes ] || [ -z "$NODE_CACHE" ] || on_every_node rm -rf "$NODE_CACHE" || true
    exit "$code"
}

STOPPED=no REFUSED=no NODE_CACHE=
trap 'STOPPED=yes' TERM
trap finish EXIT
prepare
