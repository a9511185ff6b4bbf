#!/bin/bash
# Record call stacks, kernels, ranges and sensors of any program with rocprof-sys (ROCm 6.4 and newer):
#     bash 03_sample.sh FOLDER python train.py --steps 20
# For several ranks, start this script once per rank, inside the launcher:
#     srun bash 03_sample.sh FOLDER python train.py --steps 20
# A few steps are enough. SAMPLES=100 takes fewer samples per second, and DOMAINS selects what to trace in ROCm.
# Starting with ROCm 10.1, the folder also contains a database, rocpd.db. ROCPROFSYS_USE_ROCPD=false turns it off.
set -euo pipefail

if (($# < 2)); then
    echo "usage: bash $0 FOLDER PROGRAM [ARGUMENTS...]" >&2
    exit 2
fi
folder=$1
shift
# Open MPI in a Slurm job sets both variables, and SLURM_PROCID is then 0 on every rank.
rank=${OMPI_COMM_WORLD_RANK:-${RANK:-${SLURM_PROCID:-0}}}
settings=$folder/settings-rank$rank.cfg
mkdir -p "$folder"
cat > "$settings" << END
ROCPROFSYS_TRACE                   = true
ROCPROFSYS_PROFILE                 = true
ROCPROFSYS_SAMPLING_REALTIME       = true
ROCPROFSYS_SAMPLING_FREQ           = ${SAMPLES:-300}
ROCPROFSYS_PROCESS_SAMPLING_FREQ   = 10
ROCPROFSYS_SAMPLING_CPUS           = all
ROCPROFSYS_ROCM_DOMAINS            = ${DOMAINS:-hip_runtime_api,marker_api,kernel_dispatch,memory_copy}
ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB = 200000
ROCPROFSYS_TIME_OUTPUT             = false
END
# Environment variables take precedence over the file.
for name in "${!ROCPROFSYS_@}"; do
    echo "warning: $name=${!name} in the environment overrides the settings file" >&2
done
exec rocprof-sys-sample -c "$settings" -o "$folder" "rank$rank-" -- "$@"
