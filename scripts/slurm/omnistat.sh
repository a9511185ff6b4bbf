#!/bin/bash -l
# Record utilization, power, temperature and memory of all GPUs of the job with omnistat in user mode.
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
# The replay tool reads this variable to replay the job that omnistat would have monitored.
export PROFLAB_WORKLOAD="srun -n $NTASKS ${TRAIN[*]}"
omnistat-usermode --start --interval 1
step "${TRAIN[@]}"
# Keep this order and the same interval: the query needs the server, but no new samples.
omnistat-usermode --stopexporters
omnistat-query --job "$JOB_ID" --interval 1 --export "$RESULTS/profile" | tee "$RESULTS/report.txt"
omnistat-usermode --stopserver
