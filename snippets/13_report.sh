#!/bin/bash
# What a report about a slower kernel needs to know of one side. Run it once with the old release and once with the new:
#     bash 13_report.sh old
#     bash 13_report.sh new
#     diff -r old new
# A convolution's own line for MIOpenDriver comes from a run of your script:
#     MIOPEN_ENABLE_LOGGING_CMD=1 python smallest_script.py 2> miopen_commands.txt
# A command that is not here says so in its file.
folder=${1:?a folder for this side}
mkdir -p "$folder"
python -m torch.utils.collect_env > "$folder/torch.txt" 2>&1
amd-smi version > "$folder/amd-smi.txt" 2>&1
amd-smi static --limit > "$folder/limits.txt" 2>&1
rocminfo > "$folder/rocminfo.txt" 2>&1
printenv | grep -E '^(MIOPEN|PYTORCH|TORCH|HIP|ROCR|HSA|NCCL|RCCL|ROCBLAS|HIPBLASLT)_' | sort > "$folder/variables.txt"
ls -l "${MIOPEN_USER_DB_PATH:-$HOME/.config/miopen}" > "$folder/miopen_databases.txt" 2>&1
grep -H '^Validator,' tunableop_results*.csv > "$folder/tunableop_validators.txt" 2>&1
exit 0
