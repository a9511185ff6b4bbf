"""The course's own needs: Python, the data set, the way to the notebook, and the trace viewer."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from cifar_train.config import DATA_FOLDER
from cifar_train.data import cifar100
from proflab.doctor.findings import Finding, Issue, Probe, fix, note, ok
from proflab.doctor.machine import Machine

PERFETTO = "ui.perfetto.dev"
HTTPS = 443
PERFETTO_WAIT_S = 2.0
JUPYTER_PORT = 8888
"""JupyterLab's default port; if it is in use, JupyterLab takes the next one."""


def python(machine: Machine) -> Iterator[Finding]:
    """Which Python runs this, and whether the virtual environment of another Python is active."""
    found = f"{platform.python_version()} in {sys.prefix}"
    active = machine.environment.get("VIRTUAL_ENV")
    if active and machine.resolved(active) != machine.resolved(sys.prefix):
        cure = (
            "`deactivate` (in job scripts `unset VIRTUAL_ENV PYTHONHOME`) before loading modules."
        )
        yield note("python", f"{found}, but VIRTUAL_ENV is {active}", cure, Issue.SHADOWED_PYTHON)
    else:
        yield ok("python", found)


def data(machine: Machine) -> Iterator[Finding]:
    """Whether CIFAR-100 is in the data folder, and whole."""
    fetch = f"`{cifar100.fetch_command(DATA_FOLDER)}` where there is a network."
    folder = Path(DATA_FOLDER) / cifar100.FOLDER
    if not any(machine.exists(folder / name) for name in cifar100.FILE_MD5S):
        text = "CIFAR-100 is not staged in data; synthetic images take its place"
        yield note("data", text, f"Optional: {fetch}", Issue.SLOW_DATA)
    elif damage := machine.damage_of_data(DATA_FOLDER):
        yield fix("data", damage, f"Fetch it again: {fetch}", Issue.SLOW_DATA)
    else:
        yield ok("data", "CIFAR-100 is staged in data, checksums right")


def browser(machine: Machine) -> Iterator[Finding]:
    """How a browser reaches JupyterLab here."""
    connection = machine.environment.get("SSH_CONNECTION", "").split()
    in_job = "SLURM_JOB_ID" in machine.environment
    # JupyterHub comes first: it needs no forwarded port, even where its servers are Slurm jobs.
    if any(name.startswith("JUPYTERHUB_") for name in machine.environment):
        yield ok("jupyter", "JupyterHub serves the notebooks")
    elif not connection and not in_job:
        yield ok("jupyter", "no SSH session: the browser is on this machine")
    elif in_job:
        cure = (
            "`scripts/slurm/jupyter.sh` starts it so that a browser reaches it; docs/slurm.md tells"
            " how."
        )
        yield note("jupyter", "inside a Slurm job: the browser needs a forwarded port", cure)
    else:
        machine_name = connection[2] if len(connection) == 4 else "THIS_MACHINE"
        command = f"`ssh -N -L {JUPYTER_PORT}:localhost:{JUPYTER_PORT} {machine_name}`"
        cure = (
            f"In a terminal of your laptop: {command}, then open the address that Jupyter prints."
        )
        yield note("jupyter", "over SSH: the browser needs a forwarded port", cure)


def perfetto(machine: Machine) -> Iterator[Finding]:
    """Whether the trace viewer's site answers. The browser needs it, which may run on another
    machine.
    """
    reason = machine.connect(PERFETTO, HTTPS, min(PERFETTO_WAIT_S, machine.patience_s))
    cure = "It is the browser that must reach it. Offline, lessons draw their own timelines."
    if reason is None:
        yield ok("perfetto", f"{PERFETTO} answers")
    else:
        yield note("perfetto", f"{PERFETTO} is out of reach: {reason}", cure)


PROBES = (
    Probe(("python",), python),
    Probe(("data",), data),
    Probe(("jupyter",), browser),
    Probe(("perfetto",), perfetto),
)
