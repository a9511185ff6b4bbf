"""The doctor's checks. Each check has a probe of a `Machine`, a fix, and a link to the known issue.

A probe returns a status, a description, and optionally a fix that replaces the table's fix.

Sources:

- Format of the kernel driver's files: drivers/gpu/drm/amd/amdkfd/kfd_topology.c in Linux
- Groups:
  https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html
- Visibility variables: https://rocm.docs.amd.com/en/docs-7.1.1/reference/env-variables.html
"""

from __future__ import annotations

import json
import platform
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from proflab import journal
from proflab.display import size
from proflab.doctor.machine import Answer, Machine

KFD = "/dev/kfd"
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"
COMPUTE_CLASSES = ("0x1200", "0x0380")
"""PCI classes of Instinct cards: processing accelerators and display controllers without a display.
"""

NETWORK_FILE_SYSTEMS = re.compile(
    "cifs|panfs|lustre|pvfs2|smb3|dvs|nfs4?|beegfs|afs|wekafs|virtiofs|9p|gpfs"
    "|(fuse[.])?(glusterfs|ceph|sshfs)"
)
"""Network file system types as listed in /proc/mounts."""

TRAINING_CORES = 3
"""CPU cores for the training process and its two data loader workers (cifar_train.config)."""

LITTLE_MEMORY, ENOUGH_MEMORY = 2 * 10**9, 6 * 10**9
"""Memory limits in bytes.

On a CPU, training ResNet-50 with 8 images per step took 1.2 GB in the main process alone. Two
data loader workers and a notebook need more.
"""

LITTLE_DISK, ENOUGH_DISK = 10**9, 5 * 10**9
"""Disk space limits in bytes.

By default, rocprof-sys and rocprofv3 keep a trace buffer of 1 GB, which they write to disk when
they finish.
"""

CHILD = (sys.executable, "-m", "proflab.doctor.torch_child")

TOOL_VARIABLES = (
    "LD_PRELOAD",
    "HSA_TOOLS_LIB",
    "ROCP_TOOL_LIB",
    "ROCP_TOOL_LIBRARIES",
    "ROCPROFILER_REGISTER_LIBRARY",
)
"""Variables that make a program load a profiler.

rocprofiler-register reads the last two variables. It also loads rocprofiler-sdk if a library
exports `rocprofiler_configure`, as torch does since version 2.12. The source is
projects/rocprofiler-register/source/lib/rocprofiler-register/rocprofiler_register.cpp in
https://github.com/ROCm/rocm-systems.
"""

Result = tuple[str, ...]


class Check(NamedTuple):
    """One check: its probe, its fix and the anchor of the known issue."""

    probe: Callable[[Machine], Result]
    fix: str = ""
    issue: str = ""


def architecture(properties: str) -> str | None:
    """Return the architecture that a node's `properties` file states, such as gfx942.

    Return None for a CPU, which has no SIMD units. `gfx_target_version` is major * 10000 + minor
    * 100 + stepping.
    """
    values = dict(re.findall(r"^(simd_count|gfx_target_version) (\d+)$", properties, re.MULTILINE))
    version = int(values.get("gfx_target_version", 0))
    # The name contains the minor version and the stepping in hexadecimal: 90010 is gfx90a.
    name = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return name if int(values.get("simd_count", 0)) else None


def architectures(machine: Machine) -> list[str]:
    """Return the architecture of each AMD GPU that the driver lists.

    The list also contains GPUs that this user has no permission to use.
    """
    nodes = machine.names(TOPOLOGY) if machine.path(KFD).exists() else []
    found = (architecture(machine.read(f"{TOPOLOGY}/{node}/properties")) for node in nodes)
    return [name for name in found if name]


def _nvidia(machine: Machine) -> bool:
    return machine.path("/dev/nvidiactl").exists()


def _amd_gpu(machine: Machine) -> Result:
    if found := architectures(machine):
        return "ok", ", ".join(f"{count} x {name}" for name, count in Counter(found).items())
    if machine.path(KFD).exists():
        return "unknown", f"{KFD} exists, but the driver lists no GPU", "In a job, request a GPU."
    for name in machine.names(PCI):
        vendor, kind = (machine.read(f"{PCI}/{name}/{file}") for file in ("vendor", "class"))
        if vendor == "0x1002" and kind.startswith(COMPUTE_CLASSES):
            return "fix", f"a GPU is installed, but {KFD} doesn't exist"
    hint = "You don't need to do anything because every lesson also works without a GPU."
    if machine.which("srun"):
        hint += " On a cluster, start JupyterLab in a job with `scripts/slurm/jupyter.sh`."
    return "note", "no AMD GPU", hint


def _access(machine: Machine) -> Result:
    if not machine.path(KFD).exists():
        return "not needed", "no AMD GPU"
    devices = [f"/dev/dri/{name}" for name in machine.names("/dev/dri") if name[:4] == "rend"]
    closed = [path for path in (KFD, *devices) if not machine.may_use(path)]
    if closed:
        return "fix", f"you don't have permission to use {closed[0]}"
    return "ok", f"{KFD} and {len(devices)} render devices are accessible"


def _visibility(machine: Machine) -> Result:
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    masks = {name: machine.environment[name] for name in names if name in machine.environment}
    shown = ", ".join(f"{name}={value}" for name, value in masks.items())
    if {"", "-1"} & {*masks.values()}:
        here = architectures(machine) or _nvidia(machine)
        return "fix" if here else "note", f"{shown} hides every GPU"
    if len(masks) > 1 and names[0] in masks:
        return "note", f"{shown}: HIP numbers only the GPUs that ROCR makes visible, starting at 0"
    return "ok", shown or "no environment variable hides a GPU"


def _release(folder: Path) -> str:
    """Return the version in a ROCm folder, such as 7.2.1-81, or "" if the folder doesn't contain
    one.
    """
    file = folder / ".info" / "version"
    return file.read_text().strip() if file.is_file() else ""


def _installed(machine: Machine) -> str:
    """Return the ROCm version in ROCM_PATH or in the default folder."""
    return _release(machine.path(machine.environment.get("ROCM_PATH") or "/opt/rocm"))


def _of_tool(path: str) -> str:
    """Return the version of the ROCm release that contains a program."""
    return _release(Path(path).resolve().parents[1])


def _short(version: str) -> str:
    return ".".join(re.findall(r"\d+", version)[:2])


def _rocm(machine: Machine) -> Result:
    version, tool = _installed(machine), machine.which("rocprofv3")
    other = _of_tool(tool) if tool else ""
    if not version:
        return "fix" if architectures(machine) else "not needed", "ROCm isn't installed"
    if other and other != version:
        return "note", f"{version}, but rocprofv3 belongs to ROCm {other}"
    return "ok", version


def _tool_variables(machine: Machine) -> str:
    """Return the names of the variables that are set and make programs load a tool."""
    tool, known = "rocprof|roctracer|rpd_tracer|omnistat|omnitrace|debug-agent", machine.environment
    return ", ".join(name for name in TOOL_VARIABLES if re.search(tool, known.get(name, "")))


def _preloaded(machine: Machine) -> Result:
    # A program that uses the GPU sets ROCPROFILER_REGISTER_LIBRARY for its child processes, which
    # then record nothing (https://github.com/pytorch/pytorch/issues/182373).
    found = _tool_variables(machine)
    return (
        ("fix", f"these variables load a tool into every program: {found}")
        if found
        else ("ok", "none")
    )


def _is_player(machine: Machine, path: str) -> bool:
    """Return True if `path` is the replay tool's launcher, which is a short script."""
    with open(path, "rb") as file:
        return b"proflab" in file.read(2000)


def _tool(program: str, arguments: Sequence[str], needed: bool, machine: Machine) -> Result:
    path, gpu = machine.which(program), bool(architectures(machine))
    if path is None or _is_player(machine, path):
        what = "not installed" if path is None else "a replay tool that doesn't measure"
        if gpu and needed:
            return "fix", what
        return "note" if path is None and gpu else "not needed", what
    origin = f"from ROCm {_of_tool(path)}" if _of_tool(path) else "installed"
    if not arguments:
        return "ok", origin
    answer = machine.run(path, *arguments)
    version = re.search(r"\d+(\.\d+)+", answer.text)
    if answer.code is None:
        return "unknown", f"{origin}, but no answer within {machine.patience_s:g} s"
    if answer.code and gpu:
        return "fix", f"{origin}, but it fails: {answer.last_line}"
    return "ok", f"{version[0]}, {origin}" if version and not answer.code else origin


def _rocprofv3_at_work(machine: Machine) -> Result:
    path = machine.which("rocprofv3")
    if not architectures(machine) or path is None or _is_player(machine, path):
        return "not needed", "no AMD GPU, or rocprofv3 isn't installed"
    with tempfile.TemporaryDirectory() as folder:
        options = ("--kernel-trace", "--output-format", "csv", "-d", folder, "-o", "one")
        answer = machine.run(path, *options, "--", *CHILD)
        traces = [file.read_text() for file in Path(folder).rglob("*kernel_trace.csv")]
    if answer.code is None:
        return "unknown", f"no answer within {machine.patience_s:g} s"
    if rows := sum(len(text.splitlines()) - 1 for text in traces):
        return "ok", f"rows for one kernel: {rows}"
    return "fix", f"rocprofv3 didn't record the kernel: {answer.last_line}"


def _python(machine: Machine) -> Result:
    found = f"{platform.python_version()} in {sys.prefix}"
    active = machine.environment.get("VIRTUAL_ENV")
    if active and Path(active).resolve() != Path(sys.prefix).resolve():
        return "note", f"{found}, but VIRTUAL_ENV is {active}"
    return "ok", found


def _build(machine: Machine) -> dict[str, str]:
    """Return the values of torch/version.py, with "" for None.

    Return an empty dictionary if torch isn't installed.
    """
    text = machine.module_file("torch", "version.py")
    found = r"""^(__version__|hip|cuda)\b[^=]*=\s*(?:['"]([^'"]*)['"]|None)"""
    return dict(re.findall(found, text, re.MULTILINE))


def _torch(machine: Machine) -> Result:
    build = _build(machine)
    if not build:
        return "note", "torch isn't installed, so training doesn't work"
    kind = "HIP" if build.get("hip") else "CUDA" if build.get("cuda") else "CPU"
    shown = f"{build['__version__']}, {kind} build"
    if architectures(machine) and kind != "HIP":
        return "fix", f"{shown}, but this machine has an AMD GPU"
    if _nvidia(machine) and kind == "CPU":
        return (
            "note",
            f"{shown}, but this machine has an NVIDIA GPU",
            "To use it, install a CUDA build.",
        )
    built_for, here = re.search(r"rocm([\d.]+)", build["__version__"]), _short(_installed(machine))
    if built_for and here and _short(built_for[1]) != here:
        return "note", f"{shown}, but ROCm {here} is installed"
    return "ok", shown


def _stages(answer: Answer) -> dict[str, Any]:
    """Return the stages that the child process completed, by name."""
    lines = [line for line in answer.text.splitlines() if line.startswith('{"stage"')]
    return {record["stage"]: record for record in map(json.loads, lines)}


def _torch_at_work(machine: Machine) -> Result:
    if not _build(machine):
        return "not needed", "torch isn't installed"
    answer = machine.run(*CHILD, "--profile")
    stages = _stages(answer)
    kernel, device = stages.get("kernel"), stages.get("device")
    if kernel and kernel["right"]:
        name = f"{device['count']} x {device['name']}; one kernel ran"
        if kernel["recorded"]:
            return "ok", f"{name}, and torch.profiler recorded it"
        return (
            "fix",
            f"{name}, but torch.profiler didn't record it",
            ("Install a newer torch, or use rocprofv3 instead. See trace-without-any-gpu-record."),
        )
    if device and not device["count"]:
        if architectures(machine) or _nvidia(machine):
            return "fix", "torch doesn't detect the GPU"
        return "ok", "torch works on the CPU"
    if answer.code is not None:
        return "fix", answer.last_line
    if not (stages or machine.path(KFD).exists()) and _build(machine)["hip"]:
        return "fix", "import torch hangs", "Work on a GPU node, or run `make clean lab TORCH=cpu`."
    return (
        "unknown",
        f"torch stopped responding after {list(stages) or 'the start'}",
        "Allow more time: `python -m proflab doctor --patience 60`.",
    )


def _resident(machine: Machine) -> Result:
    if not architectures(machine):
        return "not needed", "no AMD GPU, so no profiler is resident"
    kernel = _stages(machine.run(*CHILD)).get("kernel")
    if not kernel:
        return "unknown", "torch didn't run a kernel; see the row `torch at work`"
    loaded, cause = ", ".join(kernel["profilers"]), _tool_variables(machine) or "torch itself"
    off = machine.environment.get("ROCPROFILER_REGISTER_ENABLED") == "0"
    status = "note" if "rocprofiler-sdk" in loaded and not off else "ok"
    return status, f"loaded by {cause}: {loaded}" if loaded else "none"


def _slurm(machine: Machine) -> Result:
    if not machine.which("srun"):
        return "not needed", "Slurm isn't installed"
    answer = machine.run("srun", "--version")
    if answer.code != 0:
        return "unknown", f"srun: {answer.last_line}"
    if job := machine.environment.get("SLURM_JOB_ID"):
        return "ok", f"{answer.last_line}, in job {job}"
    return (
        "ok",
        f"{answer.last_line}, but this shell isn't in a job, so it is on a login node",
        ("For GPU lessons, run `srun --gpus=1 --cpus-per-task=8 --pty bash`."),
    )


def _ranks(machine: Machine) -> Result:
    known = machine.environment
    for variable, total in (
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ):
        rank, ranks = known.get(variable), known.get(total)
        if rank and ranks not in (None, "1"):
            return "note", f"the environment variables make this shell rank {rank} of {ranks}"
    return "ok", "a single process, as expected in a shell or notebook"


def _groups(machine: Machine, file: str) -> list[str]:
    """Return the contents of `file` in this process's control group and its parent groups."""
    own = re.search(r"^0::(.*)$", machine.read("/proc/self/cgroup"), re.MULTILINE)
    places = [PurePosixPath(own[1]), *PurePosixPath(own[1]).parents] if own else []
    return [machine.read(f"/sys/fs/cgroup{place}/{file}") for place in places]


def _cores(machine: Machine) -> Result:
    words = [text.split() for text in _groups(machine, "cpu.max")]
    quotas = [int(pair[0]) / int(pair[1]) for pair in words if pair and pair[0].isdigit()]
    usable = min([machine.cores(), *quotas])
    if usable < TRAINING_CORES:
        return (
            "note",
            f"{usable:g} available, which is enough for the lessons. Training with 2 data loader"
            f" workers keeps {TRAINING_CORES} cores busy",
        )
    return "ok", f"{usable:g} available"


def _memory(machine: Machine) -> Result:
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", machine.read("/proc/meminfo"), re.MULTILINE)
    if not found:
        return "unknown", "/proc/meminfo can't be read"
    limits = [int(text) for text in _groups(machine, "memory.max") if text.isdigit()]
    usable = min([int(found[1]) * 1024, *limits])
    return _enough(usable, LITTLE_MEMORY, ENOUGH_MEMORY), f"{size(usable)} free"


def _enough(value: int, little: int, enough: int) -> str:
    return "fix" if value < little else "note" if value < enough else "ok"


def _disk(folder: Callable[[Machine], str], machine: Machine) -> Result:
    place = folder(machine)
    free, writable = machine.space(place)
    if not writable:
        return "fix", f"{place} can't be written"
    return _enough(free, LITTLE_DISK, ENOUGH_DISK), f"{size(free)} free in {place}"


def _temporary(machine: Machine) -> str:
    return machine.environment.get("TMPDIR") or tempfile.gettempdir()


def _miopen(machine: Machine) -> Result:
    if not architectures(machine):
        return "not needed", "no AMD GPU"
    home = machine.environment.get("HOME", "/")
    folder = machine.environment.get("MIOPEN_USER_DB_PATH") or f"{home}/.config/miopen"
    mounts = [line.split()[1:3] for line in machine.read("/proc/mounts").splitlines()]
    inside = [(len(at), kind) for at, kind in mounts if PurePosixPath(folder).is_relative_to(at)]
    kind = max(inside)[1] if inside else "an unknown file system"
    status = "fix" if NETWORK_FILE_SYSTEMS.fullmatch(kind) else "ok"
    return status, f"{folder} is on {kind}"


def _kernel_value(name: str, highest: int, machine: Machine) -> Result:
    text = machine.read(f"/proc/sys/kernel/{name}")
    if not text:
        return "not needed", f"/proc/sys/kernel/{name} doesn't exist"
    return "note" if int(text) > highest else "ok", f"{name} is {text}"


def _data(machine: Machine) -> Result:
    if Path("data/cifar-100-python/train").is_file():
        return "ok", "CIFAR-100 is staged in data"
    return "note", "CIFAR-100 isn't staged in data, so training uses synthetic images"


def _browser(machine: Machine) -> Result:
    known = machine.environment
    # Check JupyterHub first because it never needs a forwarded port, even if its servers run as
    # Slurm jobs.
    if any(name.startswith("JUPYTERHUB_") for name in known):
        return "ok", "JupyterHub serves the notebooks"
    if "SLURM_JOB_ID" in known:
        return (
            "note",
            "inside a Slurm job, so the browser needs a forwarded port",
            ("To make JupyterLab reachable, start it with `scripts/slurm/jupyter.sh`."),
        )
    if "SSH_CONNECTION" in known:
        return "note", "connected over SSH, so the browser needs a forwarded port"
    return "ok", "the browser runs on this machine"


_LOAD = "Run `module load rocm`, or install the ROCm package {}."
CHECKS: dict[str, Check] = {
    "AMD GPU": Check(
        _amd_gpu,
        "Run `sudo modprobe amdgpu`. In a container, pass --device=/dev/kfd --device=/dev/dri.",
        "no-devkfd-although-a-gpu-is-built-in",
    ),
    "access to the GPU": Check(
        _access,
        "Run `sudo usermod -aG render,video $USER` and log in again. On a cluster, ask support.",
        "devkfd-is-there-but-may-not-be-used",
    ),
    "visible GPUs": Check(
        _visibility,
        "Unset all but one of these variables, or let Slurm set them.",
        "two-visibility-variables-hide-every-gpu",
    ),
    "ROCm": Check(
        _rocm,
        "Load only one ROCm module (`module load rocm`), or set ROCM_PATH to its folder.",
        "tools-and-libraries-from-two-rocm-releases",
    ),
    "rocprofv3": Check(
        partial(_tool, "rocprofv3", ["--version"], True), _LOAD.format("rocprofiler-sdk")
    ),
    "rocprof-sys": Check(
        partial(_tool, "rocprof-sys-run", ["--version"], True), _LOAD.format("rocprofiler-systems")
    ),
    "rocprof-compute": Check(
        partial(_tool, "rocprof-compute", ["--version"], True),
        _LOAD.format("rocprofiler-compute") + " Then install the packages in its requirements.txt.",
        "rocprof-compute-misses-python-packages",
    ),
    "rpd": Check(
        partial(_tool, "runTracer.sh", [], False),
        "Build https://github.com/ROCm/rocmProfileData with `make` and `make install`.",
    ),
    "amd-smi": Check(partial(_tool, "amd-smi", ["version"], True), _LOAD.format("amd-smi-lib")),
    "omnistat": Check(
        partial(_tool, "omnistat-query", [], False),
        "Install https://github.com/ROCm/omnistat in a separate environment.",
    ),
    "preloaded tools": Check(
        _preloaded, "Unset these variables before you profile.", "two-profilers-in-one-process"
    ),
    "rocprofv3 at work": Check(
        _rocprofv3_at_work,
        "Use rocprofv3 from the ROCm release that torch was built for.",
        "rocprofv3-in-a-virtual-environment-finds-no-gpu",
    ),
    "Python": Check(
        _python,
        "Before loading modules, run `deactivate` (in a job: `unset VIRTUAL_ENV PYTHONHOME`).",
        "a-virtual-environment-shadows-the-modules-python",
    ),
    "torch": Check(
        _torch,
        "Run `make clean setup TORCH=rocm7.2` with your ROCm release, or load the site's module.",
        "pip-installs-a-torch-that-cannot-use-the-gpu",
    ),
    "torch at work": Check(
        _torch_at_work,
        "Fix `access to the GPU` and `visible GPUs` first, then run `make clean setup`.",
        "torch-detects-the-gpu-but-its-first-kernel-fails",
    ),
    "resident profiler": Check(
        _resident,
        "If runs without a profiler crash or are slow, set `ROCPROFILER_REGISTER_ENABLED=0`.",
        "segfault-in-asynceventsloop-when-queuing-many-small-kernels",
    ),
    "Slurm": Check(_slurm, "Run `srun --version` to see the error."),
    "ranks": Check(
        _ranks,
        "Programs started in this shell wait for other ranks. Start them with srun or torchrun.",
        "a-process-waits-for-ranks-that-dont-exist",
    ),
    "cores": Check(
        _cores,
        "Request more cores with --cpus-per-task=8, or train with --num-workers 0.",
        "data-loader-workers-without-cpu-cores",
    ),
    "memory": Check(
        _memory, "Close other programs, or request more memory from Slurm with --mem=16G."
    ),
    "space for results": Check(
        partial(_disk, lambda machine: str(journal.runs_folder())),
        "Free some space, or set PROFLAB_RUNS to a folder on another disk.",
    ),
    "temporary space": Check(
        partial(_disk, _temporary), "Free some space, or set TMPDIR to a folder on another disk."
    ),
    "MIOpen databases": Check(
        _miopen,
        "Run `export MIOPEN_USER_DB_PATH=/tmp/$USER-miopen"
        " MIOPEN_CUSTOM_CACHE_DIR=/tmp/$USER-miopen`.",
        "miopen-databases-on-a-network-file-system",
    ),
    "CPU counters": Check(
        partial(_kernel_value, "perf_event_paranoid", 2),
        "Timer sampling still works. For counters, run `sudo sysctl kernel.perf_event_paranoid=2`.",
        "cpu-hardware-counters-arent-permitted",
    ),
    "attaching": Check(
        partial(_kernel_value, "yama/ptrace_scope", 0),
        "Start programs with the tool. To attach, run `sudo sysctl kernel.yama.ptrace_scope=0`.",
        "attaching-to-a-running-process-isnt-permitted",
    ),
    "data set": Check(
        _data,
        "Optional: run `cifar-train --download-only` on a machine with network access.",
        "cifar-100-takes-an-hour-to-download",
    ),
    "notebook's address": Check(
        _browser,
        "On your laptop, run `ssh -N -L 8888:localhost:8888 THIS_MACHINE` and open Jupyter's URL.",
    ),
}
"""Checks by row name. Names are stable because scripts may rely on them."""
