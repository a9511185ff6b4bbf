"""PyTorch: its build, whether it sees the device, and whether the profilers record one kernel of
it.

torch is imported in a process of its own, since the import can hang
(https://github.com/pytorch/pytorch/issues/189110).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proflab.doctor.findings import (
    Finding,
    Issue,
    Probe,
    faults_of,
    fix,
    not_needed,
    note,
    ok,
    parts,
    unknown,
)
from proflab.doctor.machine import Answer, Machine
from proflab.doctor.probes.gpu import KFD, has_amd_gpu, has_nvidia_gpu
from proflab.doctor.probes.rocm import release, rocm_folder
from proflab.doctor.probes.tools import is_stand_in
from proflab.releases import torch_builds

CHILD = (sys.executable, "-m", "proflab.doctor.torch_child")
NO_DEVICE = 3
"""Exit code of the child if torch sees no device."""

IN_USE = ("torch-device", "torch-profiler", "bfloat16", "collectives")

LONGER = "Give it longer: `python -m proflab doctor --patience 60`."


def build(machine: Machine) -> Iterator[Finding]:
    """Version, kind and known faults of the installed torch, read from its file version.py without
    importing it.
    """
    facts = installed(machine)
    if facts is None:
        text = "not installed; reading, plotting and checking work, training does not"
        yield note("torch", text, "`make setup`, or load the site's module of PyTorch.")
        return
    kind = kind_of(facts)
    shown = f"{facts['__version__']}, {kind} build"
    if has_amd_gpu(machine) and kind != "hip":
        cure = (
            "`make clean lab TORCH=rocm7.2`, or the wheel index that fits your ROCm as the only"
            " index."
        )
        yield fix("torch", f"{shown}, but the GPU is AMD's", cure, Issue.WRONG_TORCH)
    elif has_nvidia_gpu(machine) and kind == "cpu":
        cure = "Install a CUDA build to use it; the course also runs without."
        yield note("torch", f"{shown}, although there is an NVIDIA GPU", cure, Issue.WRONG_TORCH)
    else:
        yield ok("torch", shown)
    if kind == "hip":
        version, _, build_name = facts["__version__"].partition("+")
        yield from faults_of("torch", version, builds=(build_name,) if build_name else ())
        yield from _another_release(machine, build_name)


def _another_release(machine: Machine, build_name: str) -> Iterator[Finding]:
    """A row for a wheel that was built for another ROCm release than the one here."""
    # The name of a build has no patch level, so releases are compared without it.
    built_for = re.match(r"rocm(\d+\.\d+)", build_name)
    here = release(machine, rocm_folder(machine))
    if built_for and here and parts(built_for[1])[:2] != parts(here)[:2]:
        wanted = ".".join(map(str, parts(here)[:2]))
        found = f"torch was built for ROCm {built_for[1]}, and the ROCm here is {here}"
        cure = f"Load ROCm {built_for[1]} for tools and torch alike."
        if wanted in {build.rocm for build in torch_builds()}:
            cure = f"`make clean setup TORCH=rocm{wanted}`, or load ROCm {built_for[1]}."
        yield note("torch", found, cure, Issue.TWO_RELEASES)


def installed(machine: Machine) -> dict[str, str] | None:
    """Values of torch/version.py by name, with "" for None; None if torch is not installed."""
    folder = machine.package_folder("torch")
    text = machine.read(folder / "version.py") if folder else None
    if text is None:
        return None
    found = re.findall(
        r"""^(__version__|hip|cuda)\b[^=]*=\s*(?:['"]([^'"]*)['"]|None)""", text, re.MULTILINE
    )
    return {"__version__": "unknown version", "hip": "", "cuda": "", **dict(found)}


def kind_of(facts: dict[str, str]) -> str:
    """The kind of build: hip, cuda or cpu."""
    return "hip" if facts["hip"] else "cuda" if facts["cuda"] else "cpu"


def in_use(machine: Machine) -> Iterator[Finding]:
    """Import torch, look for the device, count one kernel in a trace of torch.profiler, ask for
    bfloat16 and RCCL.
    """
    facts = installed(machine)
    if facts is None:
        for key in IN_USE:
            yield not_needed(key, "torch is not installed")
        return
    # One child answers four rows, since importing torch takes seconds.
    with machine.scratch() as folder:
        trace = folder / "trace.json"
        answer = machine.run([*CHILD, str(trace)])
        stages = stages_of(answer)
        yield _device(machine, facts, answer, stages)
        yield _profiler(answer, stages, trace)
        yield _bfloat16(stages)
        yield _collectives(facts, stages)


def stages_of(answer: Answer) -> dict[str, dict[str, Any]]:
    """The stages that the child printed, by name; other lines of its output are skipped."""
    stages = {}
    for line in answer.out.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("stage"), str):
            stages[record["stage"]] = record
    return stages


def under_rocprofv3(machine: Machine) -> Iterator[Finding]:
    """Run one kernel under rocprofv3 and count the rows that it wrote."""
    key = "rocprofv3-kernel"
    path = machine.which("rocprofv3")
    if not has_amd_gpu(machine) or path is None or is_stand_in(machine, path):
        yield not_needed(key, "no AMD GPU" if not has_amd_gpu(machine) else "no real rocprofv3")
        return
    if installed(machine) is None:
        yield unknown(key, "nothing here could launch a kernel: torch is not installed")
        return
    with machine.scratch() as folder:
        options = ("--kernel-trace", "--output-format", "csv", "-d", str(folder), "-o", "one")
        answer = machine.run([path, *options, "--", *CHILD])
        yield _counted(key, machine, answer, folder)


def _device(
    machine: Machine, facts: dict[str, str], answer: Answer, stages: dict[str, Any]
) -> Finding:
    key, wait = "torch-device", f"in {machine.patience_s:g} s"
    # The furthest stage comes first: it tells more than how the child ended.
    device, kind = stages.get("device"), kind_of(facts)
    if device is not None and device.get("count"):
        right = stages.get("kernel", {}).get("right")
        name = f"{device['count']} x {device.get('name') or 'device without a name'}"
        if right:
            return ok(key, f"{name}; one kernel ran")
        if answer.end == "time-out":
            return unknown(key, f"{name}; the first kernel did not end {wait}", LONGER)
        text = f"{name}; but the first kernel fails: {answer.last_line}"
        return fix(key, text, "See the error; often the build doesn't know this GPU.")
    if device is not None:
        if {"hip": has_amd_gpu, "cuda": has_nvidia_gpu, "cpu": lambda machine: False}[kind](
            machine
        ):
            cure = "Look at the rows on GPU access and visibility first, then at the driver."
            return fix(key, "torch sees no device, but there is a GPU", cure)
        return ok(key, "torch works, on the processor")
    if (
        answer.end == "time-out"
        and "import" not in stages
        and kind == "hip"
        and not machine.exists(KFD)
    ):
        cure = "Work on a GPU node, or install a CPU build here: `make clean lab TORCH=cpu`."
        return fix(key, f"import torch does not come back {wait}", cure, Issue.IMPORT_HANGS)
    if answer.end == "time-out":
        last = list(stages)[-1] if stages else "start"
        return unknown(key, f"torch got no further than '{last}' {wait}", LONGER)
    text = f"torch cannot be imported: {answer.last_line or answer.end}"
    return fix(key, text, "`make clean setup`, or reload the module of PyTorch.")


def _profiler(answer: Answer, stages: dict[str, Any], trace: Path) -> Finding:
    key = "torch-profiler"
    if not stages.get("device", {}).get("count"):
        return not_needed(key, "no GPU whose kernels it could record")
    if not stages.get("kernel", {}).get("right"):
        return unknown(key, f"no trace: {answer.last_line or answer.end}", LONGER)
    rows, problem = kernel_rows(trace)
    if rows is None:
        return unknown(key, f"the trace can't be read: {problem}")
    if rows == 0:
        cure = (
            "Use a newer torch, since a wheel brings its own tracer; profile with rocprofv3"
            " meanwhile."
        )
        return fix(key, "one kernel ran, but the trace holds none", cure, Issue.NO_GPU_RECORDS)
    return ok(key, f"{rows} kernel row{'s' * (rows > 1)} for one kernel")


def _bfloat16(stages: dict[str, Any]) -> Finding:
    native = stages.get("bfloat16", {}).get("native")
    if native is None:
        return unknown("bfloat16", "torch did not tell")
    if native:
        return ok("bfloat16", "this processor has it; automixed is bfloat16 on it")
    found = "this processor would emulate it; automixed is float32 on it"
    return note("bfloat16", found, "Give `--precision bfloat16` on a GPU only: it is slow here.")


def _collectives(facts: dict[str, str], stages: dict[str, Any]) -> Finding:
    name = {"hip": "RCCL", "cuda": "NCCL"}.get(kind_of(facts))
    if name is None:
        return not_needed("collectives", "a CPU build uses gloo")
    if "collectives" not in stages:
        return unknown("collectives", "torch did not tell")
    version = stages["collectives"].get("library")
    if version is None:
        return note(
            "collectives", f"this torch has no {name}", "Several GPUs need a build with it."
        )
    return ok("collectives", f"{name} {version}")


def _counted(key: str, machine: Machine, answer: Answer, folder: Path) -> Finding:
    """The row for a run of one kernel under rocprofv3."""
    stages = stages_of(answer)
    # Known causes come before the failing kernel, which is their effect.
    if answer.end == "time-out":
        return unknown(key, f"not through in {machine.patience_s:g} s: stopped", LONGER)
    if answer.code == NO_DEVICE or "No HIP GPUs" in answer.text:
        cure = "Use the ROCm release that torch was built for, or its module; see the entry."
        found = "under rocprofv3 torch finds no GPU"
        return fix(key, found, cure, Issue.IN_A_VENV)
    if re.search(r"CONFIGURATION_LOCKED|outside of valid rocprofiler configuration", answer.text):
        cure = "Use rocprofv3 of the same ROCm as torch's own libraries."
        return fix(key, "torch loads a second rocprofiler-sdk", cure, Issue.TWO_SUBSCRIBERS)
    if not stages.get("kernel", {}).get("right"):
        text = f"the program fails under rocprofv3: {answer.last_line or answer.end}"
        return fix(key, text, "Try again without the profiler, then read the first error.")
    rows, problem = kernel_rows(folder)
    if not rows:
        text = f"one kernel ran, but no row was written{f' ({problem})' if problem else ''}"
        cure = "Unset LD_PRELOAD and HSA_TOOLS_LIB; use one ROCm release for tool and torch."
        return fix(key, text, cure, Issue.NO_GPU_RECORDS)
    return ok(key, f"{rows} kernel row{'s' * (rows > 1)} for one kernel")


def kernel_rows(path: Path) -> tuple[int | None, str]:
    """Number of kernels in a profile that tidyprof has read, and ""; or None and why it can't be
    read.
    """
    import tidyprof

    try:
        events = tidyprof.read(path).events
    except tidyprof.ProfileReadError as error:
        return None, str(error)
    return int((events["kind"] == "kernel").sum()), ""


PROBES = (
    Probe(("torch",), build),
    Probe(IN_USE, in_use),
    Probe(("rocprofv3-kernel",), under_rocprofv3),
)
