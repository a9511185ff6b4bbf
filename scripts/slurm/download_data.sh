#!/bin/bash
# Download CIFAR-100 (170 MB) for all jobs. Run it on the login node, which has a network. It doesn't need a GPU.
#   scripts/slurm/download_data.sh
set -euo pipefail
COURSE_DIR_HERE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=/dev/null
source "$COURSE_DIR_HERE/scripts/slurm/site.sh"
exec python -m cifar_train --download-only --data-path "$DATA_PATH"
