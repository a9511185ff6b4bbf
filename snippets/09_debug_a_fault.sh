#!/bin/bash
# A GPU program dies of a memory fault, or hangs: run it once more, slowly, so that the fault comes where the bug is.
#
#   bash 09_debug_a_fault.sh python train.py --max-steps 1
#   srun -n 4 bash 09_debug_a_fault.sh python train.py --max-steps 1      (a folder for each rank)
#   WAVES=--all bash 09_debug_a_fault.sh python train.py                  (all waves: large, one rank only)
#   HIP_LOG=yes bash 09_debug_a_fault.sh python train.py                  (the runtime's own log, large too)
#
# Make it small first: one rank, one step, no loader processes. Load no profiler beside it. In the folder FAULT
# (default: fault) lie the program's output, the agent's report, and the machine code of the kernels, which
# `llvm-objdump --disassemble-all FILE` makes readable. A program that hangs: kill -s SIGQUIT PID on its node.
set -u
[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }

rank=${RANK:-${OMPI_COMM_WORLD_RANK:-${PALS_RANKID:-${PMI_RANK:-${SLURM_PROCID:-0}}}}}
folder=${FAULT:-fault}/rank$rank
# The agent's options are cut at blanks, and its folders must exist.
case $folder in *[[:space:]]*) echo "FAULT=$FAULT: no blanks in this path" >&2; exit 2 ;; esac
mkdir -p "$folder/objects" || exit 2

# Every tensor gets memory of its own, and the host waits before and after each kernel.
export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# At the abort Python prints where the host was; with the waits, that is the line that launched the kernel.
export PYTHONFAULTHANDLER=1
[ "${HIP_LOG:-no}" = no ] || export AMD_LOG_LEVEL=4
# A core file may hold the memory of a GPU.
ulimit -c 0

agent=${DEBUG_AGENT_LIB:-${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2}
if [ -f "$agent" ]; then
    export HSA_TOOLS_LIB=$agent HSA_ENABLE_DEBUG=1
    export ROCM_DEBUG_AGENT_OPTIONS="${WAVES:+$WAVES }--output=$folder/agent.txt --save-code-objects=$folder/objects"
else
    echo "$agent is not here: no waves will be printed (set DEBUG_AGENT_LIB)" >&2
fi

"$@" >"$folder/out.txt" 2>"$folder/err.txt"
code=$?
echo "rank $rank ended with $code; see $folder"
grep -h -m 1 -E "Memory access fault|HSA_STATUS_ERROR" "$folder"/*.txt
if [ -f "$folder/agent.txt" ]; then
    # How often waves stopped, by reason and place: the most frequent place may be innocent.
    sed -nE 's/^wave_[0-9]+: pc=(0x[0-9a-f]+).*reason: ([A-Z0-9_|]+)\)$/\2 at \1/p' "$folder/agent.txt" | sort | uniq -c
fi
exit "$code"
