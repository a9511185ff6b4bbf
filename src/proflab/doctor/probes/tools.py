"""The profilers: real, stand-in or missing; their versions, and whether a version has a known
fault.

How each tool states its version: github.com/ROCm/rocm-systems (projects rocprofiler-sdk,
rocprofiler-systems, rocprofiler-compute, amdsmi, rocm-smi-lib), github.com/ROCm/omnistat,
github.com/ROCm/rocmProfileData.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import proflab
from proflab.doctor.findings import (
    Finding,
    Issue,
    Probe,
    Status,
    faults_of,
    fix,
    not_needed,
    note,
    ok,
    unknown,
)
from proflab.doctor.machine import Answer, Machine
from proflab.doctor.probes.gpu import architectures, has_amd_gpu
from proflab.doctor.probes.rocm import release, release_of_tool, rocm_folder, systems

TABLE = Path(__file__).parents[1] / "profilers.toml"
STAND_INS = Path(proflab.__file__).parent / "tapes" / "bin"
STAND_IN_MARK = "proflab.tapes"
"""A text in every stand-in's launcher, and in the files that links to launchers lead to."""

NUMBER = r"(\d+(?:\.\d+)+)"


@dataclass(frozen=True)
class Tool:
    """One profiler, as profilers.toml describes it."""

    key: str
    programs: Sequence[str]
    cure: str
    arguments: Sequence[str] | None = None
    pattern: str = ""
    old: Sequence[str] = ()
    needed: bool = True
    needs_gpu: bool = False


@cache
def all_tools() -> tuple[Tool, ...]:
    """The table in profilers.toml."""
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))["tool"]
    return tuple(Tool(**entry) for entry in entries)


def tool(described: Tool, machine: Machine) -> Iterator[Finding]:
    """One profiler's row, and one more for each known fault of its version."""
    found = [(name, path) for name in described.programs if (path := machine.which(name))]
    if not found:
        yield _missing(described, machine)
    elif is_stand_in(machine, found[0][1]):
        yield _stand_in(described, machine)
    else:
        yield from _real(described, machine, [name for name, _ in found], found[0][1])


def is_stand_in(machine: Machine, path: str) -> bool:
    """Whether a program is a stand-in of the course."""
    return STAND_IN_MARK in (machine.read(path) or "")[:2000]


def _missing(described: Tool, machine: Machine) -> Finding:
    old = next((name for name in described.old if machine.which(name)), None)
    has_gpu = has_amd_gpu(machine)
    if old is not None:
        found = f"missing; only its predecessor {old} is here"
        status = Status.FIX if has_gpu and described.needed else Status.NOTE
        return Finding(described.key, status, found, described.cure, Issue.LEGACY_TOOLS)
    if has_gpu and described.needed:
        return fix(described.key, "missing", described.cure)
    if has_gpu or release(machine, rocm_folder(machine)):
        return note(described.key, "missing", described.cure)
    has_stand_in = any(machine.exists(STAND_INS / name) for name in described.programs)
    text = "missing; lessons put a stand-in in its place" if has_stand_in else "missing"
    return not_needed(described.key, text)


def _stand_in(described: Tool, machine: Machine) -> Finding:
    if has_amd_gpu(machine) and described.needed:
        return fix(described.key, "stand-in, although there is an AMD GPU", described.cure)
    return ok(described.key, "stand-in: writes modelled files, measures nothing")


def _real(described: Tool, machine: Machine, names: list[str], path: str) -> Iterator[Finding]:
    home = release_of_tool(machine, path)
    origin = f"real, of ROCm {home}" if home else "real"
    if described.arguments is None:
        yield ok(described.key, f"{origin}; it states no version")
        return
    if described.needs_gpu and not has_amd_gpu(machine):
        yield note(described.key, f"{origin}; not asked, since it needs a GPU")
        return
    answer = machine.run([path, *described.arguments])
    version = re.search(described.pattern.replace("VERSION", NUMBER), answer.text, re.MULTILINE)
    if answer.end != "exit" or version is None:
        yield _no_version(described, machine, answer, home)
        return
    also = f" ({', '.join(names)})" if len(described.programs) > 1 else ""
    # A version counts even if the tool then ended with an error, but its row is not green.
    status = Status.OK if answer.succeeded else Status.UNKNOWN
    trouble = "" if answer.succeeded else f"; but it ended with code {answer.code}"
    yield Finding(described.key, status, f"{version[1]}{also}, {origin}{trouble}")
    yield from faults_of(described.key, version[1], architectures(machine), systems(machine))


def _no_version(described: Tool, machine: Machine, answer: Answer, home: str | None) -> Finding:
    """The row of a tool, of the ROCm release `home`, that doesn't state its version."""
    shown = " ".join([described.programs[0], *described.arguments])
    if answer.end == "time-out":
        found = f"real, but no answer in {machine.patience_s:g} s: stopped"
        return unknown(described.key, found, f"Run `{shown}` yourself; slow disk, or it hangs.")
    if re.search(
        r"No module named|package was not found|ModuleNotFoundError|ImportError", answer.text
    ):
        cure = "Make an environment of its own from the tool's requirements.txt, and run it there."
        issue = Issue.COMPUTE_PACKAGES if described.key == "rocprof-compute" else None
        return fix(described.key, f"fails: {answer.last_line}", cure, issue)
    if described.key == "rocprofv3" and home and answer.code == 2:
        # The option --version came with ROCm 7.0; before that, argparse refuses it with exit code
        # 2.
        return ok(described.key, f"real, of ROCm {home}; too old to state its version")
    if (answer.end == "exit" and answer.code == 0) or answer.end == "flood":
        found = f"real, but its answer holds no version: {answer.last_line}"
        return unknown(described.key, found, f"Run `{shown}` yourself.")
    how = f"code {answer.code}" if answer.end == "exit" else "it does not start"
    found = f"broken ({how}): {answer.last_line or 'no message'}"
    return fix(described.key, found, f"Run `{shown}` yourself; reload or reinstall it.")


PROBES = tuple(Probe((described.key,), partial(tool, described)) for described in all_tools())
