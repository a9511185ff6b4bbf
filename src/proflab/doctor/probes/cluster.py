"""Slurm, MPI, and who this process thinks it is among the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cifar_train.errors import UserError
from cifar_train.launch.ranks import discover
from proflab.doctor.findings import Finding, Issue, Probe, Status, one_line
from proflab.doctor.machine import Machine


def slurm(machine: Machine) -> Iterator[Finding]:
    """Slurm's version, and whether this is a login node, a job's batch script or a task."""
    path = machine.which("srun")
    if path is None:
        yield Finding("slurm", Status.NOT_NEEDED, "none here")
        return
    answer = machine.run([path, "--version"])
    version = re.search(r"slurm\S*\s+(\S+)", answer.out)
    if not answer.succeeded or version is None:
        status = Status.UNKNOWN if answer.end == "time-out" else Status.NOTE
        reason = answer.last_line or ("no answer" if answer.end == "time-out" else "no version")
        yield Finding("slurm", status, one_line(f"srun is here, but: {reason}"), "Run `srun --version` yourself.")
        return
    job = machine.environment.get("SLURM_JOB_ID")
    tasks = machine.environment.get("SLURM_NTASKS") or machine.environment.get("SLURM_NPROCS") or "1"
    if job is None:
        text, hint = "outside of a job: a login node", "GPU lessons: `srun --gpus=1 --cpus-per-task=8 --pty bash`."
        yield Finding("slurm", Status.OK, one_line(f"{version[1]}, {text}"), hint)
    else:
        yield Finding("slurm", Status.OK, one_line(f"{version[1]}, in job {job} with tasks: {tasks}"))


def mpi(machine: Machine) -> Iterator[Finding]:
    """The MPI launcher."""
    path = machine.which("mpirun") or machine.which("mpiexec")
    if path is None:
        yield Finding("mpi", Status.NOT_NEEDED, "no mpirun; torchrun and srun start ranks too")
        return
    answer = machine.run([path, "--version"])
    first = next((line for line in answer.out.splitlines() if re.search(r"\d+\.\d+", line)), None)
    if answer.succeeded and first:
        yield Finding("mpi", Status.OK, one_line(first))
        return
    status = Status.UNKNOWN if answer.end == "time-out" else Status.NOTE
    text = one_line(f"{path} does not tell its version: {answer.last_line or answer.end}")
    yield Finding("mpi", status, text, "Run `mpirun --version` yourself.")


def ranks(machine: Machine) -> Iterator[Finding]:
    """Rank variables in this shell: a program started from it would take them for its own."""
    try:
        launch = discover(machine.environment)
    except UserError as error:
        cure = "Unset these variables in this shell, or start the program with its launcher."
        yield Finding("ranks", Status.FIX, one_line(str(error), 200), cure, Issue.RANKS)
        return
    if launch.launcher is not None and launch.world_size > 1:
        found = f"this shell claims to be rank {launch.rank} of {launch.world_size} ({launch.launcher})"
        cure = "A program started here waits for the others: start it with srun, mpirun or torchrun."
        yield Finding("ranks", Status.NOTE, found, cure, Issue.RANKS)
    else:
        yield Finding("ranks", Status.OK, "a single process, as it should be in a shell or notebook")


PROBES = (Probe(("slurm",), slurm), Probe(("mpi",), mpi), Probe(("ranks",), ranks))
