"""Which ROCm is here, and whether all of it belongs to one release.

A release states its version in `.info/version` in its folder, which is /opt/rocm or ROCM_PATH.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from proflab.doctor.findings import (
    Finding,
    Issue,
    Probe,
    Status,
    faults_of,
    fix,
    note,
    ok,
    parts,
    unknown,
)
from proflab.doctor.machine import Machine
from proflab.doctor.probes.gpu import architectures, has_amd_gpu

DEFAULT_FOLDER = "/opt/rocm"
TOOL_VARIABLES = ("LD_PRELOAD", "HSA_TOOLS_LIB", "ROCP_TOOL_LIB", "ROCPROFILER_REGISTER_LIBRARY")
"""Variables that load a tool's library into every program. A program that has used the GPU leaves
the last one behind, and its children then record nothing
(https://github.com/pytorch/pytorch/issues/182373).
"""


def rocm_folder(machine: Machine) -> str:
    """ROCm's folder: ROCM_PATH, else the default one."""
    return machine.environment.get("ROCM_PATH") or DEFAULT_FOLDER


def release(machine: Machine, folder: str) -> str | None:
    """The version that a ROCm folder states, such as 7.2.1-81; None if it states none."""
    words = (machine.read(f"{folder}/.info/version") or "").split()
    return words[0] if words and re.match(r"\d+\.\d+", words[0]) else None


def release_of_tool(machine: Machine, path: str) -> str | None:
    """The version of the release that a program belongs to, from the folder above its `bin`."""
    return release(machine, str(Path(machine.resolved(path)).parents[1]))


def rocm(machine: Machine) -> Iterator[Finding]:
    """The release, its known faults, and tools of another release."""
    folder = rocm_folder(machine)
    version = release(machine, folder)
    if version is None:
        yield _no_release(machine, folder)
        return
    yield ok("rocm", f"{version} in {folder}")
    yield from faults_of("rocm", version, architectures(machine), systems(machine))
    tool = machine.which("rocprofv3")
    other = release_of_tool(machine, tool) if tool else None
    if other and parts(other) != parts(version):
        found = f"rocprofv3 belongs to ROCm {other}, the rest to {version}"
        cure = "Load one ROCm module only (`module purge`), or put its bin folder first on PATH."
        yield note("rocm", found, cure, Issue.TWO_RELEASES)


def systems(machine: Machine) -> tuple[str, ...]:
    """The Linux distribution and those that it resembles, from /etc/os-release: ("rocky", "rhel",
    "centos", "fedora").
    """
    found = re.findall(
        r'^(?:ID|ID_LIKE)="?([\w. -]+)"?$', machine.read("/etc/os-release") or "", re.MULTILINE
    )
    return tuple(dict.fromkeys(" ".join(found).split()))


def tools_loaded(machine: Machine) -> Iterator[Finding]:
    """Whether the environment already loads a profiler into every program: two profilers in one
    process disturb each other.
    """
    found = [
        f"{name}={machine.environment[name]}"
        for name in TOOL_VARIABLES
        if re.search(
            r"rocprof|roctracer|rpd_tracer|omnitrace|debug-agent", machine.environment.get(name, "")
        )
    ]
    if not found:
        yield ok("tools-loaded", "none")
        return
    names = " ".join(entry.partition("=")[0] for entry in found)
    text = f"every program loads a tool: {', '.join(found)}"
    yield fix("tools-loaded", text, f"`unset {names}` before you profile.", Issue.TWO_TOOLS)


def _no_release(machine: Machine, folder: str) -> Finding:
    # On a site with modules ROCm may be there, but not loaded: worth a note even without a GPU.
    modules = any(name in machine.environment for name in ("LMOD_CMD", "MODULESHOME"))
    cure = "`module load rocm`" if modules else "Install ROCm, or set ROCM_PATH to its folder"
    if machine.exists(folder):
        return unknown("rocm", f"{folder} states no version", f"{cure}.")
    if not has_amd_gpu(machine):
        return Finding(
            "rocm",
            Status.NOTE if modules else Status.NOT_NEEDED,
            "none here",
            f"{cure}." if modules else "",
        )
    return fix("rocm", f"none in {folder}, but there is an AMD GPU", f"{cure}.")


PROBES = (Probe(("rocm",), rocm), Probe(("tools-loaded",), tools_loaded))
