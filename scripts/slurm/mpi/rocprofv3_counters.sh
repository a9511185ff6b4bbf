#!/bin/bash -l
# rocprofv3_counters with Open MPI's mpirun in the place of srun; also without Slurm.
#   sbatch --ntasks=8 scripts/slurm/mpi/rocprofv3_counters.sh
#   NTASKS=2 scripts/slurm/mpi/rocprofv3_counters.sh
#SBATCH --job-name=mpi_rocprofv3_counters --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
export LAUNCHER=mpirun
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/rocprofv3_counters.sh" || exit 2
