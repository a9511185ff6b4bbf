#!/bin/sh
# What many keep beside a training script.
set -eu
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
"${PYTHON:-python}" schedule.py
echo "done"
