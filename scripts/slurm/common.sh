#!/bin/bash
# The functions of all job scripts. A job script sources this file, then calls need, smoke_test, step and expect.
COURSE_DIR_HERE=${SLURM_SUBMIT_DIR:-$PWD}
JOB_NAME=${SLURM_JOB_NAME:-$(basename "$0" .sh)}
JOB_ID=${SLURM_JOB_ID:-$(date +%Y%m%d-%H%M%S)-$$}

say() { echo "[$JOB_NAME $JOB_ID] $*"; }

# End the job because of a mistake that the user can fix.
fail() {
    REFUSED=yes
    say "refused: $*" >&2
    exit 2
}

# Variables that are left from the submitting shell would change this job's ranks and software.
unset NPROCS RANK WORLD_SIZE LOCAL_RANK OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PALS_RANKID VIRTUAL_ENV PYTHONHOME
# shellcheck source=/dev/null
source "${COURSE_DIR:-$COURSE_DIR_HERE}/scripts/slurm/site.sh"
set -euo pipefail

LAUNCHER=${LAUNCHER:-srun}
NTASKS=${SLURM_NTASKS:-${NTASKS:-1}}
NODES=${SLURM_JOB_NUM_NODES:-1}
NODE_TMP=${NODE_TMP:-${TMPDIR:-/tmp}}
SMOKE_TEST_SECONDS=${SMOKE_TEST_SECONDS:-60}
# Each job and each requeue has a separate folder, in which file names differ by rank and process number.
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
    mkdir -p "$RESULTS/profile" || fail "can't create $RESULTS. Set RESULTS_DIR to a folder that all nodes can write to"
    available=$(($(df --output=avail -k "$RESULTS" | tail -n 1) / 1024))
    [ "$available" -ge "${FREE_MB:-2000}" ] ||
        fail "$RESULTS has only $available MB free, but FREE_MB is ${FREE_MB:-2000}. Free some space or set RESULTS_DIR"
    if [ "$DATA" = cifar100 ] && [ ! -f "$DATA_PATH/cifar-100-python/train" ]; then
        fail "CIFAR-100 isn't in $DATA_PATH. Run scripts/slurm/download_data.sh on the login node, or set DATA=synthetic"
    fi
    meet
    # MIOpen locks its databases, which network file systems don't support. Therefore, each node has its own.
    export MIOPEN_USER_DB_PATH=$NODE_TMP/${USER:-$(id -un)}-miopen-$JOB_ID
    export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
    on_every_node mkdir -p "$MIOPEN_USER_DB_PATH"
    NODE_CACHE=$MIOPEN_USER_DB_PATH
}

# Rank 0 is on the first host of the list. The port depends on the job number, so that two jobs on a node don't collide.
meet() {
    local host=localhost
    if [ -n "${SLURM_JOB_NODELIST:-}" ]; then
        host=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
        host=${host%%$'\n'*} # head would end early and make scontrol fail
        # If only Slurm can resolve the name, ask Slurm for the address.
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

# Print the seconds until the job's time limit. Fail if there is no limit.
seconds_left() {
    local end
    end=$(squeue --noheader --job "${SLURM_JOB_ID:-0}" --format=%e 2>/dev/null) && [ -n "$end" ] || return 1
    end=$(date --date "$end" +%s 2>/dev/null) || return 1
    echo $((end - $(date +%s)))
}

# Return 0 if Slurm has signaled the ranks to stop. --signal=TERM@180 in the headers may take effect a minute early.
is_nearly_over() {
    local left
    left=$(seconds_left) || true # empty without a limit, or if the signal interrupted squeue
    [ "${left:-999}" -lt 245 ]
}

# need TOOL...: refuse the job if one of these programs is missing.
need() {
    local tool
    for tool in "$@"; do
        [ -n "${CONTAINER:-}" ] || command -v "$tool" >/dev/null ||
            fail "can't find $tool on $(hostname). Add its module to MODULES in site.env, or set REPLAY_TOOLS=yes to rehearse"
    done
}

need_one_rank() { [ "$NTASKS" = 1 ] || fail "$*. Submit the job with --ntasks=1"; }

# Spend a minute to find out whether the ranks can communicate before they record a profile.
smoke_test() {
    if [ "$NTASKS" -gt 1 ] && [ "$SMOKE_TEST_SECONDS" -gt 0 ]; then
        SLURM_KILL_BAD_EXIT=1 step python "$COURSE_DIR/scripts/slurm/all_reduce.py" "$SMOKE_TEST_SECONDS" ||
            fail "the ranks couldn't communicate within $SMOKE_TEST_SECONDS s. Their messages above say what to check"
    fi
}

# expect PATTERN: fail unless the folder of results contains at least one matching file per rank.
expect() {
    local found
    found=$(find "$RESULTS" -name "$1" | wc -l)
    if [ "$found" -lt "$NTASKS" ]; then
        say "failed: found $found files $1 in $RESULTS for $NTASKS ranks. The tool's message above explains why" >&2
        exit 1
    fi
}

# Print the last line of the job and write its exit code to a file, for sites without an accounting database.
finish() {
    local code=$? text
    trap - EXIT
    case $code in
    0) text="done in $SECONDS s: $(find "$RESULTS" -type f | wc -l) files in $RESULTS" ;;
    2) text="failed: the line above says what to change (exit code 2)" ;;
    137) text="failed: a rank was killed, usually because memory ran out (exit code 137). See 'srun: error' above" ;;
    *) text="failed: exit code $code. See the first error message above. Results are in $RESULTS" ;;
    esac
    # scancel also signals this script, but --signal in the header signals only the ranks.
    if [ "$STOPPED" = yes ] || { [ "$code" != 0 ] && [ "$REFUSED" = no ] && is_nearly_over; }; then
        code=143
        text="stopped by SIGTERM (time limit, scancel or requeue). Finished files are in $RESULTS"
    fi
    [ "$REFUSED" = yes ] || say "$text"
    (echo "$code" >"$RESULTS/exit_code") 2>/dev/null || true
    # A stopped job doesn't have time for another step.
    [ "$STOPPED" = yes ] || [ -z "$NODE_CACHE" ] || on_every_node rm -rf "$NODE_CACHE" || true
    exit "$code"
}

STOPPED=no REFUSED=no NODE_CACHE=
trap 'STOPPED=yes' TERM
trap finish EXIT
prepare
