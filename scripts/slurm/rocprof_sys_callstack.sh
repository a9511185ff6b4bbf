#!/bin/bash -l
# Show what the CPU does while the GPU waits: sampled call stacks next to the GPU's timeline.
#   sbatch scripts/slurm/rocprof_sys_callstack.sh
#   sbatch --ntasks=8 scripts/slurm/rocprof_sys_callstack.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rocprof_sys_callstack.sh
#SBATCH --job-name=rocprof_sys_callstack --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:30:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need rocprof-sys-avail rocprof-sys-sample
smoke_test
export ROCPROFSYS_TIME_OUTPUT=false ROCPROFSYS_TMPDIR=$NODE_TMP
# Write the timeline and the tables of samples. A profile alone would switch the timeline off.
export ROCPROFSYS_TRACE=true ROCPROFSYS_PROFILE=true
# Sample by wall-clock time, because sampling by CPU time misses threads that wait.
export ROCPROFSYS_SAMPLING_REALTIME=true
# ROCm 10.1 and newer also write a database, rocpd.db. To leave it out: export ROCPROFSYS_USE_ROCPD=false
# One process writes the configuration that all ranks read.
once rocprof-sys-avail -G "$RESULTS/rocprof-sys.cfg"
step rocprof-sys-sample -c "$RESULTS/rocprof-sys.cfg" -o "$RESULTS/profile" "$RANK_NAME-" \
    -- "${TRAIN[@]}"
expect '*perfetto-trace-*.proto'
