#!/bin/bash
# Loads the software of every job. The only script that a site edits; its values come from site.env.
if [ -n "${MODULES:-}" ]; then
    read -ra modules <<<"${MODULES//$'\n'/ }"
    module load "${modules[@]}" || exit 2
fi
[ -z "${VENV:-}" ] || PATH=$VENV/bin:$PATH
# A container has the packages, but not the course.
[ -z "${CONTAINER:-}" ] || export PYTHONPATH=$COURSE_DIR/src:$COURSE_DIR/packages/tidyprof/src${PYTHONPATH:+:$PYTHONPATH}
[ -z "${PROXY:-}" ] || export http_proxy=$PROXY https_proxy=$PROXY
if [ "${REPLAY_TOOLS:-no}" = yes ]; then
    # At the end of PATH: a real tool always wins.
    PATH=$PATH:$COURSE_DIR/src/proflab/tapes/bin
    export PROFLAB_PYTHON=${VENV:+$VENV/bin/}python
fi
export PATH
