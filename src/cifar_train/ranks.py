"""The rank and device of this process, and the connection between the ranks of a job.

Only the functions that connect ranks import torch, so any program can query its rank.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from cifar_train.config import MAX_NUMBER
from tidyprof.errors import UserError, shortened

if TYPE_CHECKING:
    import torch

MEETING_SECONDS = 60
"""Maximum wait in seconds for the other ranks at startup. The value is arbitrary."""

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""Maximum wait in one collective. The first steps may compile kernels for minutes."""

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
"""Collective library for each kind of device. On ROCm, torch's "nccl" means RCCL and "cuda" means
HIP.
"""

FIRST_PORT, PORTS = 20_000, 12_768
"""Ports for a job without MASTER_PORT. Linux can assign ports 32,768 and above to any program."""


class Launcher(NamedTuple):
    """The environment variables that contain a launcher's process numbers.

    The variable `one_node` shows whether all ranks are on one node. This variable contains
    either the number of ranks on this node or Slurm's number of nodes.
    """

    name: str
    rank: str
    world_size: str
    local_rank: str
    one_node: str
    job: str


LAUNCHERS = (
    Launcher(
        "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMIX_NAMESPACE",
    ),
    Launcher(
        "PALS", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_APID"
    ),
    Launcher(
        "Slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_NUM_NODES",
        "SLURM_JOB_ID",
    ),
)
"""Supported launchers. The order matters because torchrun and mpirun inherit Slurm's variables."""


@dataclass(frozen=True)
class Launch:
    """This process's rank in the job. Other ranks connect to rank 0 at `address` and `port`."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    launcher: str | None = None
    address: str = "127.0.0.1"
    port: int = 0

    @property
    def tag(self) -> str:
        """Part of each file name that distinguishes ranks, such as rank0_of_4."""
        return f"rank{self.rank}_of_{self.world_size}"


def discover(environment: Mapping[str, str] = os.environ) -> Launch:
    """Read this process's rank in the job from its launcher's variables.

    A Slurm batch script counts as a single process, because it has the variables of a job but
    lacks the variables of a job step. If a variable is missing or wrong, the UserError contains
    its name.
    """
    for launcher in LAUNCHERS:
        is_batch = launcher.name == "Slurm" and "SLURM_STEP_ID" not in environment
        if launcher.rank in environment and not (is_batch and "SLURM_JOB_ID" in environment):
            return _place(environment, launcher)
    if "WORLD_SIZE" in environment:
        raise UserError("WORLD_SIZE is set, but RANK isn't. Set both or neither.")
    return Launch()


def _place(environment: Mapping[str, str], launcher: Launcher) -> Launch:
    rank, world_size, local_rank = (
        _number(environment, name)
        for name in (launcher.rank, launcher.world_size, launcher.local_rank)
    )
    if rank >= world_size:
        raise UserError(
            f"{launcher.rank}={rank} must be less than {launcher.world_size}={world_size}. Likely"
            " cause: a variable is left over from another run. Unset it, or start the program"
            " through the launcher again."
        )
    # All ranks are on this node, so they can connect without knowing its host name.
    alone = "1" if launcher.name == "Slurm" else str(world_size)
    is_local = world_size == 1 or environment.get(launcher.one_node) == alone
    address = environment.get("MASTER_ADDR", "127.0.0.1" if is_local else "")
    if not address:
        raise UserError(
            f"MASTER_ADDR is not set, but {world_size} processes of {launcher.name} need the host"
            " of rank 0. Run:"
            " export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)"
        )
    # All ranks of a job use the same port. Two jobs on one node rarely use the same port. Port 0
    # means any port.
    job = environment.get(launcher.job, "").encode()
    port = 0 if world_size == 1 else FIRST_PORT + zlib.crc32(job) % PORTS
    if "MASTER_PORT" in environment:
        port = _number(environment, "MASTER_PORT", most=65_535)
    return Launch(rank, world_size, local_rank, launcher.name, address, port)


def _number(environment: Mapping[str, str], name: str, most: int = MAX_NUMBER) -> int:
    text = environment.get(name, "")
    if not text.isdecimal() or int(text[:20]) > most:
        raise UserError(
            f"{name} must be an integer up to {most}, but it is {shortened(repr(text))}. Start the"
            " program through its launcher, or unset the launcher's variables."
        )
    return int(text)


def pick_device(wanted: str, launch: Launch) -> torch.device:
    """Return this rank's torch device.

    If only one device is visible, this rank uses that device, because Slurm may show each task its
    own GPU as number 0. Otherwise, the device number is the local rank. Raises UserError if the
    device is missing.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not count):
        return torch.device("cpu")
    if not count:
        raise UserError(
            f"--device {wanted}: torch {torch.__version__} doesn't detect this device. Pass"
            " --device cpu, which always works."
        )
    if count > 1 and launch.local_rank >= count:
        raise UserError(
            f"local rank {launch.local_rank} has no device because only {count} are visible. Start"
            f" at most {count} processes per node, or check ROCR_VISIBLE_DEVICES and"
            " HIP_VISIBLE_DEVICES."
        )
    return torch.device("cuda", launch.local_rank if count > 1 else 0)


def join(launch: Launch, device: torch.device, seconds: float = MEETING_SECONDS) -> None:
    """Connect to the other ranks and start torch's process group. Without a launcher, do nothing.

    Raises UserError if the ranks don't connect within `seconds`.
    """
    if launch.launcher is None:
        return
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": launch.address, "MASTER_PORT": str(launch.port)}
    try:
        # The short timeout applies only to connecting. The process group's own timeout also applies
        # to its collectives.
        store, rank, world_size = next(
            dist.rendezvous(
                "env://", launch.rank, launch.world_size, timeout=timedelta(seconds=seconds)
            )
        )
        dist.init_process_group(
            BACKENDS[device.type],
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"rank {launch.rank} of {launch.world_size} couldn't connect to the other ranks at"
            f" MASTER_ADDR={launch.address} MASTER_PORT={launch.port} within {seconds:.0f} s"
            f" ({str(error).splitlines()[0][:160]}). Check that all ranks were started and that"
            " these variables contain the host of rank 0 and a free port."
        ) from error


def gather(value: Any, launch: Launch) -> list[Any]:
    """Return the values of all ranks, ordered by rank. Every rank must call this function."""
    values = [value] * launch.world_size
    if launch.world_size > 1:
        import torch.distributed as dist

        dist.all_gather_object(values, value)
    return values


def leave(launch: Launch) -> None:
    """Disconnect from the other ranks after all ranks finish."""
    if launch.launcher is not None:
        import torch.distributed as dist

        dist.destroy_process_group()
