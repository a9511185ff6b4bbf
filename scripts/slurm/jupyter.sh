#!/bin/bash -l
# Run JupyterLab with the lessons on a node of the job. The file connect.txt in the job's folder shows how to reach it.
#   sbatch --gpus-per-node=1 --time=04:00:00 scripts/slurm/jupyter.sh
#SBATCH --job-name=jupyter --output=%x_%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=02:00:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

# Start it in the container but not in a separate step, because a lesson may call srun.
launch=()
[ "${CONTAINER_RUNTIME:-}" != pyxis ] || launch=(srun --nodes=1 --ntasks=1 --overlap)
enter_container
"${launch[@]}" python -c 'import jupyterlab' ||
    fail "can't find JupyterLab. Set VENV in site.env to the environment of make setup, or use a CONTAINER that has it"
port=$((MASTER_PORT - 10000)) # a lesson's ranks use MASTER_PORT, and the system assigns ports above 32768
# The token is a password, so only its owner may read the files. Don't put it into a log, or into the environment, which
# all kernels and jobs would inherit and profilers would record.
unset JUPYTER_TOKEN
token=$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
export JUPYTER_TOKEN_FILE="$RESULTS/token"
(umask 077 && printf '%s' "$token" >"$JUPYTER_TOKEN_FILE")
(umask 077 && cat >"$RESULTS/connect.txt") <<END
Run this command on your own computer, and leave it running. It prints nothing. LOGIN_NODE is the address of your login:

    ssh -N -o ExitOnForwardFailure=yes -L $port:$MASTER_ADDR:$port $(id -un)@LOGIN_NODE

Then open this address in your browser:

    http://127.0.0.1:$port/lab/tree/notebooks/00_start_here.ipynb?token=$token
END
say "JupyterLab is starting. To reach it: cat $RESULTS/connect.txt. To stop it: scancel $JOB_ID"
# Listen on the node's address, because the login node connects to it, and only on the port that the file names.
root=()
[ "$(id -u)" != 0 ] || root=(--allow-root)
"${launch[@]}" python -m jupyterlab --no-browser "${root[@]}" --ServerApp.ip="$MASTER_ADDR" --ServerApp.port="$port" \
    --ServerApp.port_retries=0 --ServerApp.root_dir="$COURSE_DIR"
