#!/bin/bash
# How a command becomes many ranks: srun, mpirun or torchrun, inside a container or not. Sourced by common.sh.

# Which variable holds the rank. ROCm's %rank% looks at SLURM_PROCID first, which mpirun's processes inherit as 0.
case $LAUNCHER in
srun) RANK_VARIABLE=SLURM_PROCID ;;
mpirun) RANK_VARIABLE=OMPI_COMM_WORLD_RANK ;;
torchrun) RANK_VARIABLE=RANK ;;
*) fail "LAUNCHER=$LAUNCHER is none of srun, mpirun, torchrun" ;;
esac
# shellcheck disable=SC2034 # job scripts use it
RANK_NAME="rank%env{$RANK_VARIABLE}%_pid%pid%"
# A rank that crashes shall not end the others while they write their profiles. A lost rank ends the next collective.
export RANK_VARIABLE SLURM_KILL_BAD_EXIT=0

# Minutes that a step may take: what is left of the job, less one to end it in order. Nothing where there is no limit.
step_minutes() {
    local left
    left=$(seconds_left) || return 0
    left=$((left / 60 - 1))
    echo $((left > 1 ? left : 1))
}

# Sets `launch` to the command that starts the ranks.
choose_launcher() {
    local minutes masks ranks_per_node=$((NTASKS / NODES))
    case $LAUNCHER in
    mpirun)
        # Loader processes need cores of their own: no binding to one core per rank.
        launch=(mpirun -n "$NTASKS" --bind-to none --wdir "$RESULTS")
        [ "$NTASKS" = 1 ] || launch+=(--tag-output)
        ;;
    *)
        launch=(srun --nodes="$NODES" --ntasks="$NTASKS" --chdir="$RESULTS")
        CPU_BIND=${CPU_BIND:-}
        CPU_BIND=${CPU_BIND//[[:space:]]/}
        IFS=, read -ra masks <<<"$CPU_BIND"
        if [ "$LAUNCHER" = srun ] && [ $((${#masks[@]} * NODES)) = "$NTASKS" ]; then
            # Slurm follows masks in a step that has every core of its nodes. With --cpus-per-task, which newer releases
            # take from the environment too, it would have only as many as its ranks count up to.
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

# Extends `launch` to run inside CONTAINER, where there is one.
enter_container() {
    [ -n "${CONTAINER:-}" ] || return 0
    local folder options mounts=()
    for folder in "$COURSE_DIR" "$RESULTS" "$DATA_PATH" "$NODE_TMP"; do
        [ ! -d "$folder" ] || mounts+=("$folder:$folder")
    done
    local list
    list=$(IFS=,; echo "${mounts[*]}")
    CONTAINER_RUNTIME=${CONTAINER_RUNTIME:-apptainer}
    # Without a colon: a site may set it to nothing.
    CONTAINER_OPTIONS=${CONTAINER_OPTIONS---rocm}
    read -ra options <<<"${CONTAINER_OPTIONS//$'\n'/ }"
    case $CONTAINER_RUNTIME in
    apptainer | singularity)
        launch+=("$CONTAINER_RUNTIME" exec "${options[@]}" --bind "$list" --pwd "$RESULTS" "$CONTAINER")
        ;;
    pyxis) launch+=(--container-image="$CONTAINER" --container-mounts="$list" --container-workdir="$RESULTS") ;;
    *) fail "CONTAINER_RUNTIME=$CONTAINER_RUNTIME is none of apptainer, singularity, pyxis" ;;
    esac
}

# step COMMAND...: runs the command on every rank, in the folder of results.
step() {
    local launch
    choose_launcher
    say "+ ${launch[*]} $*"
    "${launch[@]}" "$@"
}

# once COMMAND...: the same with a single process, for instance to write a configuration for all ranks.
once() { NTASKS=1 NODES=1 step "$@"; }
