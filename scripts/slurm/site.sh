#!/bin/bash
# Read the site's values unless this shell has them. The caller sets COURSE_DIR_HERE to the folder of the course.
if [ -z "${COURSE_DIR:-}" ]; then
    SITE_ENV=${SITE_ENV:-$COURSE_DIR_HERE/scripts/slurm/site.env}
    # shellcheck source=/dev/null
    [ ! -f "$SITE_ENV" ] || source "$SITE_ENV"
    COURSE_DIR=${COURSE_DIR:-$COURSE_DIR_HERE}
fi
RESULTS_DIR=${RESULTS_DIR:-$COURSE_DIR/runs/slurm}
DATA=${DATA:-cifar100}
DATA_PATH=${DATA_PATH:-$COURSE_DIR/data}
export COURSE_DIR RESULTS_DIR
# shellcheck source=/dev/null
source "$COURSE_DIR/scripts/slurm/setup.sh"
