#!/bin/sh
# Player of tapes under the name of this tool: see proflab/tapes. Every file here is the same.
exec "${PROFLAB_PYTHON:-python3}" -m proflab.tapes "${0##*/}" "$@"
