#!/bin/bash -l
# Several ranks of any PyTorch program under PBS with the launcher PALS, with a trace for each rank:
#     qsub 07_ranks_job_pbs.sh
# Fill in these lines, then the values below. PBS reads the lines before the shell, so don't use variables in them.
#PBS -A my_project
#PBS -q debug
#PBS -l select=1,walltime=00:15:00,filesystems=home
#PBS -l place=scatter
#PBS -N ranks
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
program=(python train.py)
results=$PWD/ranks_${PBS_JOBID%%.*}
# An Aurora node has 12 tiles, which are halves of Intel GPUs, and eight CPU cores near each.
ranks_per_node=12
binding=list:1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100
# The tool that wraps each rank, as in the Slurm script. It is empty because the program writes its traces to PROFILE_DIR.
tool=()
expected='*rank*.json.gz'

set -euo pipefail
mkdir -p "$results"
ranks=$(($(sort -u "$PBS_NODEFILE" | wc -l) * ranks_per_node))
# Ranks connect on the first node, at a port that only this job uses. On Intel GPUs, each tile is a separate device.
number=${PBS_JOBID%%.*}
number=${number//[!0-9]/}
MASTER_ADDR=$(head -n 1 "$PBS_NODEFILE")
export MASTER_ADDR MASTER_PORT=$((20000 + 10#$number % 10000)) WORLD_SIZE=$ranks
export ZE_FLAT_DEVICE_HIERARCHY=FLAT PROFILE_DIR=$results

# Run a command on every rank, with the variables that torchrun would set.
on_every_rank() {
    # shellcheck disable=SC2016 # each rank expands these variables
    mpiexec -n "$ranks" --ppn "$ranks_per_node" --cpu-bind "$binding" \
        bash -c 'export RANK=$PALS_RANKID LOCAL_RANK=$PALS_LOCAL_RANKID; exec "$@"' rank "$@"
}

on_every_rank "${tool[@]}" "${program[@]}"

files=$(find "$results" -name "$expected" | wc -l)
echo "$files files $expected in $results, $ranks ranks"
[ "$files" -ge "$ranks" ] # fails if several ranks wrote to the same name
