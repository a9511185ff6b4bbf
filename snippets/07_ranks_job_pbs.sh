#!/bin/bash -l
# Several ranks of any PyTorch program under PBS with the launcher PALS, and a trace for each:
#     qsub 07_ranks_job_pbs.sh
# Fill in these lines (PBS reads them before any shell does: no variables in them), then the values below.
#PBS -A my_project
#PBS -q debug
#PBS -l select=1,walltime=00:15:00,filesystems=home
#PBS -l place=scatter
#PBS -N ranks
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
program=(python train.py)
results=$PWD/ranks_${PBS_JOBID%%.*}
# A node of Aurora: 12 halves of Intel's cards, called tiles, each with eight cores near it.
ranks_per_node=12
binding=list:1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100
# A tool around each rank, as in the script for Slurm. Here: none, the program writes its traces into PROFILE_DIR.
tool=()
expected='*rank*.json.gz'

set -euo pipefail
mkdir -p "$results"
ranks=$(($(sort -u "$PBS_NODEFILE" | wc -l) * ranks_per_node))
# Ranks meet on the first node, at a port of this job's own. On Intel's GPUs each tile shall be a device of its own.
number=${PBS_JOBID%%.*}
number=${number//[!0-9]/}
MASTER_ADDR=$(head -n 1 "$PBS_NODEFILE")
export MASTER_ADDR MASTER_PORT=$((20000 + 10#$number % 10000)) WORLD_SIZE=$ranks
export ZE_FLAT_DEVICE_HIERARCHY=FLAT PROFILE_DIR=$results

# Runs a command on every rank, with the variables that torchrun would set.
on_every_rank() {
    # shellcheck disable=SC2016 # the variables are those of the rank
    mpiexec -n "$ranks" --ppn "$ranks_per_node" --cpu-bind "$binding" \
        bash -c 'export RANK=$PALS_RANKID LOCAL_RANK=$PALS_LOCAL_RANKID; exec "$@"' rank "$@"
}

on_every_rank "${tool[@]}" "${program[@]}"

files=$(find "$results" -name "$expected" | wc -l)
echo "$files files $expected in $results, $ranks ranks"
[ "$files" -ge "$ranks" ] # one name for several ranks: the last one has replaced the others
