#!/bin/bash -l
# Timeline of whole processes: HIP calls, kernels, copies and GPU telemetry as a Perfetto trace per rank.
#   sbatch scripts/slurm/rocprof_sys_trace.sh
#   sbatch --ntasks=8 scripts/slurm/rocprof_sys_trace.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rocprof_sys_trace.sh
#SBATCH --job-name=rocprof_sys_trace --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:30:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need rocprof-sys-avail rocprof-sys-run
smoke_test
# No sub-folder by the minute of the start, which ranks may not share. The trace grows on the node's own disk.
export ROCPROFSYS_TIME_OUTPUT=false ROCPROFSYS_TMPDIR=$NODE_TMP
# From ROCm 10.1 on there is a database too, rocpd.db; `export ROCPROFSYS_USE_ROCPD=false` leaves it out.
# One process writes the configuration that all ranks read: all settings with their values, to keep beside the results.
# Counters too: `rocprof-sys-avail -H -c GPU` lists them, `export ROCPROFSYS_ROCM_EVENTS=SQ_WAVES` asks for one.
once rocprof-sys-avail -G "$RESULTS/rocprof-sys.cfg"
step rocprof-sys-run -c "$RESULTS/rocprof-sys.cfg" --profile --trace -o "$RESULTS/profile" "$RANK_NAME-" \
    -- "${TRAIN[@]}"
expect '*perfetto-trace-*.proto'
