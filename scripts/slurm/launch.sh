#!/bin/bash
# Start a command on many ranks with srun, mpirun or torchrun, in a container or not. common.sh sources this file.

# Choose the variable with the rank. ROCm's %rank% uses SLURM_PROCID first, which mpirun's processes inherit as 0.
case $LAUNCHER in
srun) RANK_VARIABLE=SLURM_PROCID ;;
mpirun) RANK_VARIABLE=OMPI_COMM_WORLD_RANK ;;
torchrun) RANK_VARIABLE=RANK ;;
*) fail "LAUNCHER must be srun, mpirun or torchrun, but it is $LAUNCHER" ;;
esac
# shellcheck disable=SC2034 # job scripts use it
RANK_NAME="rank%env{$RANK_VARIABLE}%_pid%pid%"
# A rank that crashes must not end the other ranks while they write their profiles. The next collective ends them.
export RANK_VARIABLE SLURM_KILL_BAD_EXIT=0

# Print the minutes that a step may take: the job's remaining time minus one. Print nothing if there is no limit.
step_minutes() {
    local left
    left=$(seconds_left) || return 0
    left=$((left / 60 - 1))
    echo $((left > 1 ? left : 1))
}

# Set `launch` to the command that starts the ranks.
choose_launcher() {
    local minutes masks ranks_per_node=$((NTASKS / NODES))
    case $LAUNCHER in
    mpirun)
        # Don't bind a rank to one core, because its loader processes need more cores.
        launch=(mpirun -n "$NTASKS" --bind-to none --wdir "$RESULTS")
        [ "$NTASKS" = 1 ] || launch+=(--tag-output)
        ;;
    *)
        launch=(srun --nodes="$NODES" --ntasks="$NTASKS" --chdir="$RESULTS")
        CPU_BIND=${CPU_BIND:-}
        CPU_BIND=${CPU_BIND//[[:space:]]/}
        IFS=, read -ra masks <<<"$CPU_BIND"
        if [ "$LAUNCHER" = srun ] && [ $((${#masks[@]} * NODES)) = "$NTASKS" ]; then
            # Slurm follows masks only in a step that has every core of its nodes. With --cpus-per-task, which newer
            # releases also read from the environment, the step would have only the cores of its ranks.
            launch=(env -u SLURM_CPUS_PER_TASK -u SRUN_CPUS_PER_TASK -u SLURM_TRES_PER_TASK "${launch[@]}")
            launch+=(--cpu-bind="$CPU_BIND")
        else
            launch+=(--cpus-per-task="${SLURM_CPUS_PER_TASK:-1}")
        fi
        minutes=$(step_minutes)
        [ -z "$minutes" ] || launch+=(--time="$minutes")
        [ "$NTASKS" = 1 ] || launch+=(--label)
        ;;
    esac
    if [ "$LAUNCHER" = torchrun ]; then
        launch+=(--ntasks="$NODES" --ntasks-per-node=1 --cpus-per-task=$((${SLURM_CPUS_PER_TASK:-1} * ranks_per_node)))
    fi
    enter_container
    if [ "$LAUNCHER" = torchrun ]; then
        launch+=(torchrun --nnodes="$NODES" --nproc-per-node="$ranks_per_node" --rdzv-backend=c10d --rdzv-id="$JOB_ID")
        launch+=(--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --no-python)
    fi
}

# Extend `launch` to run inside CONTAINER if it is set.
enter_container() {
    [ -n "${CONTAINER:-}" ] || return 0
    local folder options mounts=()
    for folder in "$COURSE_DIR" "$RESULTS" "$DATA_PATH" "$NODE_TMP"; do
        [ ! -d "$folder" ] || mounts+=("$folder:$folder")
    done
    local list
    list=$(IFS=,; echo "${mounts[*]}")
    CONTAINER_RUNTIME=${CONTAINER_RUNTIME:-apptainer}
    # No colon before the hyphen, so that a site can set an empty value.
    CONTAINER_OPTIONS=${CONTAINER_OPTIONS---rocm}
    read -ra options <<<"${CONTAINER_OPTIONS//$'\n'/ }"
    case $CONTAINER_RUNTIME in
    apptainer | singularity)
        launch+=("$CONTAINER_RUNTIME" exec "${options[@]}" --bind "$list" --pwd "$RESULTS" "$CONTAINER")
        ;;
    pyxis) launch+=(--container-image="$CONTAINER" --container-mounts="$list" --container-workdir="$RESULTS") ;;
    *) fail "CONTAINER_RUNTIME must be apptainer, singularity or pyxis, but it is $CONTAINER_RUNTIME" ;;
    esac
}

# step COMMAND...: run the command on every rank, in the folder of results.
step() {
    local launch
    choose_launcher
    say "+ ${launch[*]} $*"
    "${launch[@]}" "$@"
}

# once COMMAND...: run the command in a single process, for example to write a configuration for all ranks.
once() { NTASKS=1 NODES=1 step "$@"; }
