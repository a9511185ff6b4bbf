#!/bin/bash -l
# Utilization, power, temperature and memory of all GPUs of the job: omnistat in user mode.
#   sbatch scripts/slurm/omnistat.sh
#   sbatch --ntasks=8 scripts/slurm/omnistat.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/omnistat.sh
#SBATCH --job-name=omnistat --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

PATH=${OMNISTAT_DIR:+$OMNISTAT_DIR:}$PATH
need omnistat-usermode omnistat-query
export OMNISTAT_VICTORIA_DATADIR=$RESULTS/data_prom
# For the player, which replays the job that omnistat would have watched.
export PROFLAB_WORKLOAD="srun -n $NTASKS ${TRAIN[*]}"
omnistat-usermode --start --interval 1
step "${TRAIN[@]}"
# The query needs the server still, and no more samples: this order, and the same interval.
omnistat-usermode --stopexporters
omnistat-query --job "$JOB_ID" --interval 1 --export "$RESULTS/profile" | tee "$RESULTS/report.txt"
omnistat-usermode --stopserver
