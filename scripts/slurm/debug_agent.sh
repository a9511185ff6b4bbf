#!/bin/bash -l
# The job died or hangs: waves, registers and code of the GPU at a fault, a file per rank.
#   sbatch scripts/slurm/debug_agent.sh
#   sbatch --ntasks=8 scripts/slurm/debug_agent.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/debug_agent.sh
#SBATCH --job-name=debug_agent --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

library=${DEBUG_AGENT_LIB:-${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2}
[ -n "${CONTAINER:-}" ] || [ -f "$library" ] || fail "$library is not here; set DEBUG_AGENT_LIB in site.env"
export HSA_TOOLS_LIB=$library HSA_ENABLE_DEBUG=1
# Slow, but the fault comes where the bug is: no memory is kept back, and every kernel is waited for.
export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# All waves of a GPU can be a million lines: of a single rank only. Many ranks print the waves that stopped.
export AGENT_WAVES=
[ "$NTASKS" -gt 1 ] || AGENT_WAVES="--all "
# Nothing is written unless a kernel fails. A rank that hangs: kill -s SIGQUIT PID on its node prints all waves.
# No core file: with a GPU's memory in it, it may fill the disk.
# shellcheck disable=SC2016 # expanded on the rank
step bash -c 'ulimit -c 0
    export ROCM_DEBUG_AGENT_OPTIONS="${AGENT_WAVES}--output=$RESULTS/profile/rank${!RANK_VARIABLE}_pid$$.txt"
    exec "$@"' _ "${TRAIN[@]}" --num-workers 0
