#!/bin/sh
# Stand-in for the tool of this name: see proflab/standins. Every file here is the same.
exec "${PROFLAB_PYTHON:-python3}" -m proflab.standins "${0##*/}" "$@"
