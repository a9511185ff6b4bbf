#!/bin/sh
# Start the replay tool under this tool's name (see proflab/tapes). All files in this folder are identical.
exec "${PROFLAB_PYTHON:-python3}" -m proflab.tapes "${0##*/}" "$@"
