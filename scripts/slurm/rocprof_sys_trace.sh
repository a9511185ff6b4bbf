#!/bin/bash -l
# Record a timeline of whole processes: HIP calls, kernels, copies and GPU telemetry, one Perfetto trace per rank.
#   sbatch scripts/slurm/rocprof_sys_trace.sh
#   sbatch --ntasks=8 scripts/slurm/rocprof_sys_trace.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/rocprof_sys_trace.sh
#SBATCH --job-name=rocprof_sys_trace --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:30:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

need rocprof-sys-avail rocprof-sys-run
smoke_test
# Don't create a subfolder for the start minute, which may differ between ranks. Buffer the trace on a local disk.
export ROCPROFSYS_TIME_OUTPUT=false ROCPROFSYS_TMPDIR=$NODE_TMP
# ROCm 10.1 and newer also write a database, rocpd.db. To leave it out: export ROCPROFSYS_USE_ROCPD=false
# One process writes the configuration with all settings, which all ranks read. It stays with the results.
# To add counters, list them with `rocprof-sys-avail -H -c GPU` and, for example, export ROCPROFSYS_ROCM_EVENTS=SQ_WAVES
once rocprof-sys-avail -G "$RESULTS/rocprof-sys.cfg"
step rocprof-sys-run -c "$RESULTS/rocprof-sys.cfg" --profile --trace -o "$RESULTS/profile" "$RANK_NAME-" \
    -- "${TRAIN[@]}"
expect '*perfetto-trace-*.proto'
