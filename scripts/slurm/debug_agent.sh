#!/bin/bash -l
# Find out why a job crashed or hangs: record the GPU's waves, registers and code at a fault, one file per rank.
#   sbatch scripts/slurm/debug_agent.sh
#   sbatch --ntasks=8 scripts/slurm/debug_agent.sh                (8 ranks on a node)
#   sbatch --ntasks=16 --nodes=2 scripts/slurm/debug_agent.sh
#SBATCH --job-name=debug_agent --output=%x_%j.out --open-mode=append --signal=TERM@180
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=00:15:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

library=${DEBUG_AGENT_LIB:-${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2}
[ -n "${CONTAINER:-}" ] || [ -f "$library" ] || fail "can't find $library. Set DEBUG_AGENT_LIB in site.env"
export HSA_TOOLS_LIB=$library HSA_ENABLE_DEBUG=1
# These settings are slow, but the fault occurs at the bug: they disable memory caches and wait for every kernel.
export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# All waves of a GPU can fill a million lines, so only a single rank prints them. Several ranks print stopped waves.
export AGENT_WAVES=
[ "$NTASKS" -gt 1 ] || AGENT_WAVES="--all "
# The agent writes only if a kernel fails. If a rank hangs, kill -s SIGQUIT PID on its node prints all waves.
# Don't write a core file, because with the GPU's memory it may fill the disk.
# shellcheck disable=SC2016 # expanded on the rank
step bash -c 'ulimit -c 0
    export ROCM_DEBUG_AGENT_OPTIONS="${AGENT_WAVES}--output=$RESULTS/profile/rank${!RANK_VARIABLE}_pid$$.txt"
    exec "$@"' _ "${TRAIN[@]}" --num-workers 0
