#!/bin/bash -l
# triage with Open MPI's mpirun in the place of srun; also without Slurm.
#   sbatch --ntasks=8 scripts/slurm/mpi/triage.sh
#   NTASKS=2 scripts/slurm/mpi/triage.sh
#SBATCH --job-name=mpi_triage --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
export LAUNCHER=mpirun
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/triage.sh" || exit 2
