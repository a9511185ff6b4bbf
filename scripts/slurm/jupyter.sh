#!/bin/bash -l
# JupyterLab with the lessons, on a node of the job. The file connect.txt in the job's folder says how to reach it.
#   sbatch --gpus-per-node=1 --time=04:00:00 scripts/slurm/jupyter.sh
#SBATCH --job-name=jupyter --output=%x_%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=7 --time=02:00:00
# shellcheck source=/dev/null
source "${COURSE_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}/scripts/slurm/common.sh" || exit 2

# In a container, but in no step of its own: a lesson may start srun.
launch=()
[ "${CONTAINER_RUNTIME:-}" != pyxis ] || launch=(srun --nodes=1 --ntasks=1 --overlap)
enter_container
"${launch[@]}" python -c 'import jupyterlab' ||
    fail "there is no JupyterLab here; set VENV in site.env to what make setup made, or take a CONTAINER that has it"
port=$((MASTER_PORT - 10000)) # ranks that a lesson starts meet at the other; the system gives ports above 32768 away
# The token is a password: only its owner may read the files, and it stands in no log and no environment, which all
# kernels and jobs would inherit, and profilers record.
unset JUPYTER_TOKEN
token=$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
export JUPYTER_TOKEN_FILE="$RESULTS/token"
(umask 077 && printf '%s' "$token" >"$JUPYTER_TOKEN_FILE")
(umask 077 && cat >"$RESULTS/connect.txt") <<END
On your own computer, where LOGIN_NODE is the address that you log in to. It says nothing; leave it running:

    ssh -N -o ExitOnForwardFailure=yes -L $port:$MASTER_ADDR:$port $(id -un)@LOGIN_NODE

Then open in the browser there:

    http://127.0.0.1:$port/lab/tree/notebooks/00_start_here.ipynb?token=$token
END
say "JupyterLab starts; how to reach it: cat $RESULTS/connect.txt; when you are done: scancel $JOB_ID"
# It listens on the node's address, since the login node asks, and takes no other port, since the file names this one.
root=()
[ "$(id -u)" != 0 ] || root=(--allow-root)
"${launch[@]}" python -m jupyterlab --no-browser "${root[@]}" --ServerApp.ip="$MASTER_ADDR" --ServerApp.port="$port" \
    --ServerApp.port_retries=0 --ServerApp.root_dir="$COURSE_DIR"
