#!/bin/bash
# Records the whole set on real GPUs and makes recordings of it, as the course ships them. Run it on the login node.
#   COPYRIGHT="Copyright (c) 2026 Somebody" scripts/slurm/record_all.sh
set -euo pipefail
COURSE_DIR_HERE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=/dev/null
source "$COURSE_DIR_HERE/scripts/slurm/site.sh"
: "${COPYRIGHT:?say whose recordings these are, such as COPYRIGHT=\"Copyright (c) 2026 Somebody\"}"
# The player measures nothing: if a tool is missing, its job must fail.
export REPLAY_TOOLS=no RESULTS_DIR=$RESULTS_DIR/recording
"$COURSE_DIR/scripts/slurm/submit_all.sh" --wait || echo "record_all: some jobs failed; the others are taken" >&2
python "$COURSE_DIR/scripts/slurm/collect_recordings.py" "$RESULTS_DIR" "$COURSE_DIR/recordings" \
    --copyright "$COPYRIGHT"
