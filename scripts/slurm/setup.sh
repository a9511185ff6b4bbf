#!/bin/bash
# Load the software of every job. This is the only script that a site edits. Its values come from site.env.
if [ -n "${MODULES:-}" ]; then
    read -ra modules <<<"${MODULES//$'\n'/ }"
    module load "${modules[@]}" || exit 2
fi
[ -z "${VENV:-}" ] || PATH=$VENV/bin:$PATH
# A container contains the packages, but not the course.
[ -z "${CONTAINER:-}" ] || export PYTHONPATH=$COURSE_DIR/src:$COURSE_DIR/packages/tidyprof/src${PYTHONPATH:+:$PYTHONPATH}
[ -z "${PROXY:-}" ] || export http_proxy=$PROXY https_proxy=$PROXY
if [ "${REPLAY_TOOLS:-no}" = yes ]; then
    # Put it at the end of PATH, so that a real tool takes precedence.
    PATH=$PATH:$COURSE_DIR/src/proflab/tapes/bin
    export PROFLAB_PYTHON=${VENV:+$VENV/bin/}python
fi
export PATH
