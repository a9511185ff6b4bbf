#!/bin/bash
# Record the whole set on real GPUs, in the form that the course ships. Run it on the login node.
#   COPYRIGHT="Copyright (c) 2026 Somebody" scripts/slurm/record_all.sh
set -euo pipefail
COURSE_DIR_HERE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=/dev/null
source "$COURSE_DIR_HERE/scripts/slurm/site.sh"
: "${COPYRIGHT:?name the owner of the recordings, for example COPYRIGHT=\"Copyright (c) 2026 Somebody\"}"
# The replay tool doesn't measure anything, so a job must fail if its tool is missing.
export REPLAY_TOOLS=no RESULTS_DIR=$RESULTS_DIR/recording
"$COURSE_DIR/scripts/slurm/submit_all.sh" --wait || echo "record_all: some jobs failed. Recording the others" >&2
python "$COURSE_DIR/scripts/slurm/collect_recordings.py" "$RESULTS_DIR" "$COURSE_DIR/recordings" \
    --copyright "$COPYRIGHT"
