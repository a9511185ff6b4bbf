#!/bin/bash
# Call stacks, kernels, ranges and sensors of any program, with rocprof-sys (ROCm 6.4 and later):
#     bash 03_sample.sh FOLDER python train.py --steps 20
# Several ranks: start this script once per rank, inside the launcher:
#     srun bash 03_sample.sh FOLDER python train.py --steps 20
# Few steps are enough. SAMPLES=100 takes fewer stacks a second, DOMAINS names what of ROCm is traced. From ROCm 10.1 on
# the folder has a database too, rocpd.db; ROCPROFSYS_USE_ROCPD=false leaves it out.
set -euo pipefail

if (($# < 2)); then
    echo "usage: bash $0 FOLDER PROGRAM [ARGUMENTS...]" >&2
    exit 2
fi
folder=$1
shift
# The first rank that a launcher names: Open MPI inside a job of Slurm sets both, and Slurm's is then 0 everywhere.
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
# Environment variables would win over the file.
for name in "${!ROCPROFSYS_@}"; do
    echo "warning: $name=${!name} in the environment goes before the settings file" >&2
done
exec rocprof-sys-sample -c "$settings" -o "$folder" "rank$rank-" -- "$@"
