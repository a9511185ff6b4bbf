#!/bin/bash -l
# Collect the speed-of-light counters of every kernel. rocprof-compute runs the training once per group of counters.
#   sbatch scripts/slurm/rocprof_compute_profile.sh
#SBATCH --job-name=rocprof_compute_profile --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=02:00:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need_one_rank "rocprof-compute runs the program several times, and ranks would wait for each other forever"
need rocprof-compute
# Every pass is a whole run, so use few steps. Run once before, so that no pass includes MIOpen's search.
train=("${TRAIN[@]}" --max-steps 2)
step "${train[@]}"
# Table 2 is enough, but the tools of ROCm 6.3 and 6.4 (3.0, 3.1) don't accept tables here, so they count everything.
tables=(-b 2)
[[ ! $(once rocprof-compute --version) =~ version:\ 3\.[01]\. ]] || tables=()
# The results are in workloads/cifar_train/<name of the GPU>, or in ROCm 7.12 and newer, workloads/cifar_train/<rank>.
step rocprof-compute profile --name cifar_train --no-roof "${tables[@]}" -- "${train[@]}"
expect sysinfo.csv
