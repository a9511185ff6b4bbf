#!/bin/bash -l
# Speed of light of every kernel: rocprof-compute runs the training once per group of counters.
#   sbatch scripts/slurm/rocprof_compute_profile.sh
#SBATCH --job-name=rocprof_compute_profile --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=02:00:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need_one_rank "rocprof-compute runs the program again and again, and ranks would wait for each other for ever"
need rocprof-compute
# Every pass is a whole run: few steps. One run goes before, so that MIOpen's search is in none of them.
train=("${TRAIN[@]}" --max-steps 2)
step "${train[@]}"
# Table 2 is enough, but the tools of ROCm 6.3 and 6.4 (3.0, 3.1) know no tables here: they count everything.
tables=(-b 2)
[[ ! $(once rocprof-compute --version) =~ version:\ 3\.[01]\. ]] || tables=()
# Below the folder of results it makes workloads/cifar_train/<name of the GPU>, since ROCm 7.12 .../<rank>.
step rocprof-compute profile --name cifar_train --no-roof "${tables[@]}" -- "${train[@]}"
expect sysinfo.csv
