#!/bin/bash -l
# What the processor does while the GPU waits: sampled call stacks beside the GPU's timeline.
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
# The timeline, and the samples added up in tables. A profile alone would switch the timeline off.
export ROCPROFSYS_TRACE=true ROCPROFSYS_PROFILE=true
# By the clock on the wall: by processor time, a thread that waits would give no samples.
export ROCPROFSYS_SAMPLING_REALTIME=true
# From ROCm 10.1 on there is a database too, rocpd.db; `export ROCPROFSYS_USE_ROCPD=false` leaves it out.
# One process writes the configuration that all ranks read.
once rocprof-sys-avail -G "$RESULTS/rocprof-sys.cfg"
step rocprof-sys-sample -c "$RESULTS/rocprof-sys.cfg" -o "$RESULTS/profile" "$RANK_NAME-" \
    -- "${TRAIN[@]}"
expect '*perfetto-trace-*.proto'
