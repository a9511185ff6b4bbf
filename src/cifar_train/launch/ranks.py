"""Which rank this process is, by the variables of torchrun, Slurm, Open MPI or PALS."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from cifar_train.config import MOST
from tidyprof.errors import UserError, shortened

# Linux gives ports from here on to programs that ask for any port (net.ipv4.ip_local_port_range),
# so a job that relied on one of these would now and then find it taken.
FIRST_EPHEMERAL_PORT = 32768


class LostRankError(UserError):
    """Another rank is gone; exit code 1, since this one did nothing wrong."""


@dataclass(frozen=True)
class Launcher:
    """The environment variables by which a launcher numbers its processes.

    world_size -- several names, of which the first one that is set counts; likewise job, the names
    of a job's identifier.
    """

    name: str
    rank: str
    world_size: tuple[str, ...]
    local_rank: str
    local_world_size: str | None
    job: tuple[str, ...]


LAUNCHERS = (
    Launcher(
        "torchrun",
        "RANK",
        ("WORLD_SIZE",),
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID",),
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher(
        "PALS", "PALS_RANKID", ("PMI_SIZE",), "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", ("PALS_APID",)
    ),
    Launcher(
        "Slurm",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NPROCS"),
        "SLURM_LOCALID",
        None,
        ("SLURM_JOB_ID",),
    ),
)
"""The order matters, since within a Slurm job torchrun and mpirun inherit Slurm's variables."""


@dataclass(frozen=True)
class Launch:
    """This process's place in the job. `address` and `port` are where rank 0 can be met."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    launcher: str | None = None
    address: str | None = None
    port: int | None = None

    @property
    def tag(self) -> str:
        """The part of every file name that keeps ranks apart: rank0_of_4."""
        return f"rank{self.rank}_of_{self.world_size}"

    @property
    def meeting_point(self) -> str:
        """Address and port in the words of the variables that set them."""
        return f"MASTER_ADDR={self.address} MASTER_PORT={self.port}"


def discover(environment: Mapping[str, str] | None = None) -> Launch:
    """Read rank, world size, local rank and meeting point from the launcher's variables.

    A Slurm batch script itself, which has variables of a job but not of a step, counts as a single
    process: only `srun` starts tasks. Raises UserError that names the variable that is missing or
    wrong.
    """
    environment = os.environ if environment is None else environment
    launcher = _find_launcher(environment)
    if launcher is None:
        return Launch()
    rank = _number(environment, launcher.rank, launcher)
    world_size = _number(
        environment, _first_set(environment, launcher.world_size, launcher), launcher
    )
    local_rank = _number(environment, launcher.local_rank, launcher)
    if world_size < 1 or rank >= world_size:
        raise UserError(
            f"{launcher.name} set {launcher.rank}={rank}, which is not below the number of"
            f" processes {world_size}; a variable is left over from another run: unset it or start"
            " through the launcher again"
        )
    if world_size == 1 and "MASTER_ADDR" not in environment:
        return Launch(rank, world_size, local_rank, launcher.name, "127.0.0.1", 0)
    address = _address(environment, launcher, world_size)
    return Launch(
        rank, world_size, local_rank, launcher.name, address, _port(environment, launcher)
    )


def _find_launcher(environment: Mapping[str, str]) -> Launcher | None:
    for launcher in LAUNCHERS:
        if (
            launcher.name == "Slurm"
            and "SLURM_JOB_ID" in environment
            and "SLURM_STEP_ID" not in environment
        ):
            continue
        if launcher.rank in environment:
            return launcher
        if launcher.name == "torchrun" and any(name in environment for name in launcher.world_size):
            raise UserError(
                "WORLD_SIZE is set but RANK is not; set both, or neither for a single process"
            )
    return None


def _first_set(environment: Mapping[str, str], names: tuple[str, ...], launcher: Launcher) -> str:
    for name in names:
        if name in environment:
            return name
    raise UserError(
        f"{launcher.rank} is set but {' and '.join(names)} {'are' if len(names) > 1 else 'is'} not,"
        f" so the number of processes is unknown; start with {launcher.name}'s own launcher or set"
        f" {names[-1]}"
    )


def _number(environment: Mapping[str, str], name: str, launcher: Launcher) -> int:
    if name not in environment:
        raise UserError(
            f"{launcher.rank} is set but {name} is not; start with {launcher.name} or set {name}"
        )
    try:
        value = int(environment[name])
    except ValueError:
        value = -1
    if not 0 <= value <= MOST:
        raise UserError(
            f"{name} must be a whole number up to {MOST}, not {shortened(repr(environment[name]))}"
        )
    return value


def _address(environment: Mapping[str, str], launcher: Launcher, world_size: int) -> str:
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    node_count = environment.get("SLURM_STEP_NUM_NODES", environment.get("SLURM_NNODES"))
    local_size = environment.get(launcher.local_world_size or "")
    # Ranks on a single node can meet there, whatever its name is.
    if local_size == str(world_size) or (launcher.name == "Slurm" and node_count == "1"):
        return "127.0.0.1"
    raise UserError(
        f"MASTER_ADDR is not set: {world_size} processes of {launcher.name} need the host name of"
        " rank 0, for instance export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST |"
        " head -n1)"
    )


def _port(environment: Mapping[str, str], launcher: Launcher) -> int:
    if "MASTER_PORT" in environment:
        port = _number(environment, "MASTER_PORT", launcher)
        if not 0 < port < 65536:
            raise UserError(f"MASTER_PORT must lie between 1 and 65535, not {port}")
        return port
    for name in launcher.job:
        if name in environment:
            # The same job gives all ranks the same port; two jobs on one node rarely share one.
            return 20000 + zlib.crc32(environment[name].encode()) % (FIRST_EPHEMERAL_PORT - 20000)
    raise UserError(
        "MASTER_PORT is not set; all processes need the same free port, for instance 29500"
    )
