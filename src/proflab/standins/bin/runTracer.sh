#!/bin/sh
# Stand-in for runTracer.sh: see proflab/standins.
exec "${PROFLAB_PYTHON:-python3}" -m proflab.standins runTracer.sh "$@"
