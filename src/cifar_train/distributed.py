"""Who am I among the ranks, which device is mine, and how do the ranks meet.

`discover` only reads environment variables, so it can be tested and used without torch.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cifar_train.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch.distributed import Store

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""Longest wait inside one collective; the first steps may compile kernels for minutes."""

BACKENDS = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}
"""Collective library by device; on ROCm torch's "nccl" is RCCL and its "cuda" is HIP."""


@dataclass(frozen=True)
class Launcher:
    """The environment variables by which one launcher numbers its processes."""

    name: str
    rank: str
    world_size: tuple[str, ...]
    local_rank: str
    local_world_size: str | None
    job: tuple[str, ...]


LAUNCHERS = (
    Launcher("torchrun", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID",)),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher("PALS", "PALS_RANKID", ("PMI_SIZE",), "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", ("PALS_APID",)),
    Launcher(
        "Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NPROCS"), "SLURM_LOCALID", None, ("SLURM_JOB_ID",)
    ),
)
"""Order matters: torchrun and mpirun inside a Slurm job inherit Slurm's variables too."""


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

    Raises UserError naming the variable that is missing or wrong. A Slurm batch
    script itself (job variables, but no step) counts as a single process: only
    `srun` starts tasks.
    """
    environment = os.environ if environment is None else environment
    launcher = _find_launcher(environment)
    if launcher is None:
        return Launch()
    rank = _number(environment, launcher.rank, launcher)
    world_size = _number(environment, _first_set(environment, launcher.world_size, launcher), launcher)
    local_rank = _number(environment, launcher.local_rank, launcher)
    if world_size < 1 or rank >= world_size:
        raise UserError(
            f"{launcher.name} set {launcher.rank}={rank}, which is not below the number of processes {world_size}; "
            f"a variable is left over from another run: unset it or start through the launcher again"
        )
    if world_size == 1 and "MASTER_ADDR" not in environment:
        return Launch(rank, world_size, local_rank, launcher.name, "127.0.0.1", 0)
    address = _address(environment, launcher, world_size)
    return Launch(rank, world_size, local_rank, launcher.name, address, _port(environment, launcher))


def _find_launcher(environment: Mapping[str, str]) -> Launcher | None:
    for launcher in LAUNCHERS:
        if launcher.name == "Slurm" and "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment:
            continue
        if launcher.rank in environment:
            return launcher
        if launcher.name == "torchrun" and any(name in environment for name in launcher.world_size):
            raise UserError("WORLD_SIZE is set but RANK is not; set both, or neither for a single process")
    return None


def _first_set(environment: Mapping[str, str], names: tuple[str, ...], launcher: Launcher) -> str:
    for name in names:
        if name in environment:
            return name
    raise UserError(
        f"{launcher.rank} is set but {' and '.join(names)} {'are' if len(names) > 1 else 'is'} not, so the number of "
        f"processes is unknown; start with {launcher.name}'s own launcher or set {names[-1]}"
    )


def _number(environment: Mapping[str, str], name: str, launcher: Launcher) -> int:
    if name not in environment:
        raise UserError(f"{launcher.rank} is set but {name} is not; start with {launcher.name} or set {name}")
    try:
        value = int(environment[name])
    except ValueError:
        value = -1
    if value < 0:
        raise UserError(f"{name} must be a whole number, not {environment[name]!r}")
    return value


def _address(environment: Mapping[str, str], launcher: Launcher, world_size: int) -> str:
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    node_count = environment.get("SLURM_STEP_NUM_NODES", environment.get("SLURM_NNODES"))
    local_size = environment.get(launcher.local_world_size or "")
    if local_size == str(world_size) or (launcher.name == "Slurm" and node_count == "1"):
        return "127.0.0.1"
    raise UserError(
        f"MASTER_ADDR is not set: {world_size} processes of {launcher.name} need the host name of rank 0, "
        "for instance export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)"
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
            return 20000 + zlib.crc32(environment[name].encode()) % 20000
    raise UserError("MASTER_PORT is not set; all processes need the same free port, for instance 29500")


def pick_device(wanted: str, launch: Launch) -> torch.device:
    """The torch device of this rank.

    One visible device means ordinal 0 whatever the rank (Slurm may show each task
    its own GPU as number 0), else the local rank. Raises UserError.
    """
    import torch

    kind = _available_kind() if wanted == "auto" else wanted
    if kind == "cpu":
        return torch.device("cpu")
    count = getattr(torch, kind).device_count() if hasattr(torch, kind) and getattr(torch, kind).is_available() else 0
    if count == 0:
        raise UserError(f"--device {kind}: torch {torch.__version__} sees no such device; --device cpu always works")
    return torch.device(kind, ordinal(count, launch))


def ordinal(device_count: int, launch: Launch) -> int:
    """Which of the visible devices belongs to this rank. Raises UserError if there are too few."""
    if device_count == 1:
        return 0
    if launch.local_rank >= device_count:
        raise UserError(
            f"local rank {launch.local_rank} has no device: only {device_count} are visible; start at most "
            f"{device_count} processes a node, or check ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"
        )
    return launch.local_rank


def _available_kind() -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "xpu"
    return "cpu"


def connect(launch: Launch, device: torch.device, timeout_seconds: int) -> Store | None:
    """Meet the other ranks and start the process group; None for a plain single process.

    Waits at most `timeout_seconds` for the others, then raises UserError with the
    variables to check.
    """
    if launch.launcher is None:
        return None
    import torch.distributed as dist

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = launch.address or "127.0.0.1", str(launch.port or 0)
    try:
        store = dist.HashStore() if launch.world_size == 1 else _meet(launch, timeout_seconds)
        dist.init_process_group(
            BACKENDS[device.type],
            store=dist.PrefixStore("ranks", store),
            rank=launch.rank,
            world_size=launch.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
    except (RuntimeError, ValueError, ConnectionError) as error:
        raise UserError(
            f"rank {launch.rank} of {launch.world_size} could not meet the other ranks at {launch.meeting_point} "
            f"within {timeout_seconds} s ({_first_line(error)}); check that {launch.world_size} processes were "
            "started, that MASTER_ADDR names the host of rank 0, and that nobody else uses MASTER_PORT"
        ) from error
    return store


def _meet(launch: Launch, timeout_seconds: int) -> Store:
    """The job's store, shared by all ranks.

    Name and port are tried with plain sockets first, since torch's own attempts fill the
    log with C++ frames; and the handshake runs in a thread of its own, since it waits
    without limit for a server that is not torch's.
    """
    _check_name(launch)
    if launch.rank != 0:
        _await_listener(launch, timeout_seconds)
    outcome: list[Store | Exception] = []

    def shake_hands() -> None:
        from torch.distributed.rendezvous import rendezvous

        try:
            limit = timedelta(seconds=timeout_seconds)
            outcome.append(next(rendezvous("env://", launch.rank, launch.world_size, timeout=limit))[0])
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=shake_hands, daemon=True)
    thread.start()
    # torch's own limit comes first where it works; the margin covers its retry.
    thread.join(2 * timeout_seconds + 5)
    if not outcome:
        raise ConnectionError("something that is not a rank of this job answers there")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _check_name(launch: Launch) -> None:
    try:
        socket.getaddrinfo(launch.address, launch.port)
    except socket.gaierror as error:
        raise UserError(
            f"MASTER_ADDR={launch.address} is not the name of a host that this one knows ({error.strerror}); "
            "set it to the host of rank 0"
        ) from error


def _await_listener(launch: Launch, timeout_seconds: int) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            with socket.create_connection((launch.address, launch.port), timeout=timeout_seconds):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(f"nobody listens there: {error.strerror or error}") from error
        time.sleep(0.2)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
