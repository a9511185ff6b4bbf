#!/bin/bash
# Collect what a report about a slower kernel needs. Run this script once with the old and once with the new release:
#     bash 13_report.sh old
#     bash 13_report.sh new
#     diff -r old new
# To get a convolution's command line for MIOpenDriver, run your script with logging:
#     MIOPEN_ENABLE_LOGGING_CMD=1 python smallest_script.py 2> miopen_commands.txt
# If a command isn't installed, its output file contains the error.
folder=${1:?pass a folder for this release}
mkdir -p "$folder"
python -m torch.utils.collect_env > "$folder/torch.txt" 2>&1
amd-smi version > "$folder/amd-smi.txt" 2>&1
amd-smi static --limit > "$folder/limits.txt" 2>&1
rocminfo > "$folder/rocminfo.txt" 2>&1
printenv | grep -E '^(MIOPEN|PYTORCH|TORCH|HIP|ROCR|HSA|NCCL|RCCL|ROCBLAS|HIPBLASLT)_' | sort > "$folder/variables.txt"
ls -l "${MIOPEN_USER_DB_PATH:-$HOME/.config/miopen}" > "$folder/miopen_databases.txt" 2>&1
grep -H '^Validator,' tunableop_results*.csv > "$folder/tunableop_validators.txt" 2>&1
exit 0
