"""Slurm, MPI, and the variables that give this process a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cifar_train.ranks import discover
from proflab.doctor.findings import Finding, Issue, Probe, fix, not_needed, note, ok, unknown
from proflab.doctor.machine import Answer, Machine
from tidyprof.errors import UserError


def slurm(machine: Machine) -> Iterator[Finding]:
    """Slurm's version, and whether this is a login node or inside a job."""
    path = machine.which("srun")
    if path is None:
        yield not_needed("slurm", "none here")
        return
    answer = machine.run([path, "--version"])
    version = re.search(r"slurm\S*\s+(\S+)", answer.out)
    if not answer.succeeded or version is None:
        yield _silent("slurm", "srun", answer)
    elif job := machine.environment.get("SLURM_JOB_ID"):
        # sbatch sets neither unless a number of tasks was asked for: the job then has one.
        tasks = (
            machine.environment.get("SLURM_NTASKS")
            or machine.environment.get("SLURM_NPROCS")
            or "1"
        )
        yield ok("slurm", f"{version[1]}, in job {job} with tasks: {tasks}")
    else:
        hint = "GPU lessons: `srun --gpus=1 --cpus-per-task=8 --pty bash`."
        yield ok("slurm", f"{version[1]}, outside of a job: a login node", hint)


def mpi(machine: Machine) -> Iterator[Finding]:
    """The MPI launcher and its version."""
    path = machine.which("mpirun") or machine.which("mpiexec")
    if path is None:
        yield not_needed("mpi", "no mpirun; torchrun and srun start ranks too")
        return
    answer = machine.run([path, "--version"])
    # MPICH's first line, `HYDRA build details:`, has no version.
    first = next((line for line in answer.out.splitlines() if re.search(r"\d+\.\d+", line)), None)
    yield ok("mpi", first) if answer.succeeded and first else _silent("mpi", "mpirun", answer)


def _silent(key: str, program: str, answer: Answer) -> Finding:
    """The row of a launcher that does not print its version."""
    row = unknown if answer.end == "time-out" else note
    reason = answer.last_line or ("no answer" if answer.end == "time-out" else "no version")
    return row(key, f"{program} is here, but: {reason}", f"Run `{program} --version` yourself.")


def ranks(machine: Machine) -> Iterator[Finding]:
    """Rank variables in this shell: a program that is started here would take them for its own."""
    try:
        launch = discover(machine.environment)
    except UserError as error:
        cure = "Unset these variables in this shell, or start the program with its launcher."
        yield fix("ranks", str(error), cure, Issue.RANKS)
        return
    if launch.launcher is not None and launch.world_size > 1:
        found = (
            f"this shell claims to be rank {launch.rank} of {launch.world_size} ({launch.launcher})"
        )
        cure = (
            "A program started here waits for the others: start it with srun, mpirun or torchrun."
        )
        yield note("ranks", found, cure, Issue.RANKS)
    else:
        yield ok("ranks", "a single process, as it should be in a shell or notebook")


PROBES = (Probe(("slurm",), slurm), Probe(("mpi",), mpi), Probe(("ranks",), ranks))
