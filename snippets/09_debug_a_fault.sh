#!/bin/bash
# Rerun a GPU program that hangs or dies from a memory fault. It runs slowly, so that the fault occurs at the bug.
#
#   bash 09_debug_a_fault.sh python train.py --max-steps 1
#   srun -n 4 bash 09_debug_a_fault.sh python train.py --max-steps 1      (a folder for each rank)
#   WAVES=--all bash 09_debug_a_fault.sh python train.py                  (all waves: large, one rank only)
#   HIP_LOG=yes bash 09_debug_a_fault.sh python train.py                  (the runtime's own log, large too)
#
# Make the job small first: one rank, one step, no data loader workers, no profiler. The folder FAULT (default: fault) gets
# the program's output, the agent's report and the machine code. `llvm-objdump --disassemble-all FILE` makes the latter
# readable. FILE is the URI after "code object:" with _ for each of :/#?&= (printed at the end). If the program hangs,
# run kill -s SIGQUIT PID on its node.
set -u
[ $# -gt 0 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }

rank=${RANK:-${OMPI_COMM_WORLD_RANK:-${PALS_RANKID:-${PMI_RANK:-${SLURM_PROCID:-0}}}}}
folder=${FAULT:-fault}/rank$rank
# Spaces separate the agent's options, and its folders must exist.
case $folder in *[[:space:]]*) echo "FAULT=$FAULT contains a space. Use a path without spaces." >&2; exit 2 ;; esac
mkdir -p "$folder/objects" || exit 2

# Every tensor gets separate memory, and the host waits before and after each kernel.
export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# At the abort, Python prints where the host was. Because the host waits, that is the line that launched the kernel.
export PYTHONFAULTHANDLER=1
[ "${HIP_LOG:-no}" = no ] || export AMD_LOG_LEVEL=4
# A core file can contain the memory of a GPU.
ulimit -c 0

agent=${DEBUG_AGENT_LIB:-${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2}
if [ -f "$agent" ]; then
    export HSA_TOOLS_LIB=$agent HSA_ENABLE_DEBUG=1
    export ROCM_DEBUG_AGENT_OPTIONS="${WAVES:+$WAVES }--output=$folder/agent.txt --save-code-objects=$folder/objects"
else
    echo "$agent doesn't exist, so no waves will be printed. Set DEBUG_AGENT_LIB to its path." >&2
fi

"$@" >"$folder/out.txt" 2>"$folder/err.txt"
code=$?
echo "rank $rank ended with $code; see $folder"
grep -h -m 1 -E "Memory access fault|HSA_STATUS_ERROR" "$folder"/*.txt
if [ -f "$folder/agent.txt" ]; then
    # Count the stopped waves by reason and place. The most frequent place may be innocent.
    sed -nE 's/^wave_[0-9]+: pc=(0x[0-9a-f]+).*reason: ([A-Z0-9_|]+)\)$/\2 at \1/p' "$folder/agent.txt" | sort | uniq -c
    # The saved file with the code of each stopped kernel.
    sed -nE 's/^ *code object: //p' "$folder/agent.txt" | sort -u | tr ':/#?&=' '_' | sed "s|^|$folder/objects/|"
fi
exit "$code"
