"""Limits of the system: counters, attaching, cores, memory, disk space, and where MIOpen keeps its
databases.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from proflab import journal
from proflab.display import size
from proflab.doctor.findings import (
    Finding,
    Issue,
    Probe,
    fix,
    not_needed,
    note,
    ok,
    one_line,
    unknown,
)
from proflab.doctor.machine import Machine
from proflab.doctor.probes.gpu import has_amd_gpu

NETWORK_FILE_SYSTEMS = re.compile(
    "cifs|panfs|(fuse[.])?glusterfs|fuse[.]sshfs|lustre|pvfs2|smb3|dvs|nfs4?|(fuse[.])?ceph"
    "|beegfs|afs|wekafs|virtiofs"
    "|9p|gpfs"
)
"""Types in /proc/mounts whose files lie on another machine, as the Linux kernel and the makers of
file systems name them.
"""

PARANOID_LIMIT = 2
"""Highest perf_event_paranoid at which a process may count its own events:
https://docs.kernel.org/admin-guide/perf-security.html.
"""

WORKERS = 2
"""Number of the trainer's loader processes (cifar_train.config); each needs a core, and so does the
training itself.
"""

LITTLE_MEMORY, ENOUGH_MEMORY = 2 * 10**9, 6 * 10**9
"""In bytes. Training ResNet-50 with 8 images a step took 1.2 GB in the main process alone (measured
on a processor); two loader processes and a notebook need more on top.
"""

LITTLE_DISK, ENOUGH_DISK = 10**9, 5 * 10**9
"""In bytes. rocprof-sys and rocprofv3 keep a trace buffer of 1 GB by default, which is written to
disk at the end.
"""


def counters(machine: Machine) -> Iterator[Finding]:
    """Whether hardware counters of the processor may be read (rocprof-sys, perf)."""
    level = _number(machine.read("/proc/sys/kernel/perf_event_paranoid"))
    if level is None:
        yield unknown("perf-counters", "/proc/sys/kernel/perf_event_paranoid can't be read")
    elif level > PARANOID_LIMIT:
        cure = (
            "Sampling by timer works all the same; for counters `sudo sysctl"
            " kernel.perf_event_paranoid=2`."
        )
        yield note("perf-counters", f"perf_event_paranoid is {level}", cure, Issue.PERF_PARANOID)
    else:
        yield ok("perf-counters", f"perf_event_paranoid is {level}")


def attaching(machine: Machine) -> Iterator[Finding]:
    """Whether a tool may attach to a process that is already running. The values:
    https://docs.kernel.org/admin-guide/LSM/Yama.html.
    """
    level = _number(machine.read("/proc/sys/kernel/yama/ptrace_scope"))
    if level == 0:
        yield ok("ptrace-scope", "tools may attach to your processes")
    elif level is not None:
        cure = "Start programs under the tool; to attach, `sudo sysctl kernel.yama.ptrace_scope=0`."
        yield note("ptrace-scope", f"ptrace_scope is {level}: no attaching", cure, Issue.PTRACE)
    elif machine.exists("/proc/sys/kernel") and not machine.exists("/proc/sys/kernel/yama"):
        yield ok("ptrace-scope", "not restricted: the kernel has no Yama")
    else:
        yield unknown("ptrace-scope", "/proc/sys/kernel/yama/ptrace_scope can't be read")


def miopen_cache(machine: Machine) -> Iterator[Finding]:
    """Whether MIOpen's SQLite databases lie on a file system whose locks work."""
    key = "miopen-cache"
    if not has_amd_gpu(machine):
        yield not_needed(key, "no AMD GPU")
        return
    home = machine.environment.get("HOME", "~")
    folder = machine.environment.get("MIOPEN_USER_DB_PATH") or f"{home}/.config/miopen"
    kind = file_system(machine, folder)
    if kind is None:
        yield unknown(key, f"file system of {folder} unknown: no /proc/mounts")
    elif NETWORK_FILE_SYSTEMS.fullmatch(kind):
        cure = (
            "`export MIOPEN_USER_DB_PATH=/tmp/$USER-miopen"
            " MIOPEN_CUSTOM_CACHE_DIR=/tmp/$USER-miopen`"
        )
        yield fix(key, f"{folder} is on {kind}, a network file system", cure, Issue.MIOPEN_CACHE)
    else:
        yield ok(key, f"{folder} on {kind}")


def file_system(machine: Machine, path: str) -> str | None:
    """Type of the file system that holds `path`, from /proc/mounts; None if /proc/mounts is not
    there.
    """
    real = PurePosixPath(machine.resolved(path))
    best, kind = -1, None
    for line in (machine.read("/proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        # Blanks and the like are written as \040.
        place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[1])
        # Of several mounts on one folder the last one hides the others.
        if real.is_relative_to(place) and len(place) >= best:
            best, kind = len(place), fields[2]
    return kind


def cores(machine: Machine) -> Iterator[Finding]:
    """Cores that may be used: the fewest of the machine's, of the process's mask, and of its
    control group's.
    """
    total, allowed = machine.cores()
    quotas = [
        quota for folder in control_groups(machine, "cpu") if (quota := _cpu_quota(machine, folder))
    ]
    known = [count for count in (total, allowed, *quotas) if count]
    if not known:
        yield unknown("cores", "how many cores may be used can't be read")
        return
    usable = min(known)
    found = f"{usable:g} of {total or '?'} may be used"
    if usable < WORKERS + 1:
        more = "Ask for more with --cpus-per-task=8, or train" if machine.which("srun") else "Train"
        found = f"{found}; training and {WORKERS} loader processes want {WORKERS + 1}"
        yield note("cores", found, f"{more} with --num-workers 0.", Issue.FEW_CORES)
    else:
        yield ok("cores", found)


def memory(machine: Machine) -> Iterator[Finding]:
    """Free memory: of the machine, and below the limit of the control group."""
    values = dict(
        re.findall(r"^(\w+):\s+(\d+) kB$", machine.read("/proc/meminfo") or "", re.MULTILINE)
    )
    # Not MemFree: the kernel gives its caches back on demand.
    if "MemAvailable" not in values:
        yield unknown("memory", "/proc/meminfo can't be read")
        return
    available, total = (int(values.get(name, 0)) * 1024 for name in ("MemAvailable", "MemTotal"))
    limits = [
        limit
        for folder in control_groups(machine, "memory")
        if (limit := _memory_limit(machine, folder))
    ]
    limit = min([*limits, total])
    usable = min(available, limit)
    capped = f", limit of this job {size(limit)}" if limit < total else ""
    found = f"{size(available)} free of {size(total)}{capped}"
    if usable < LITTLE_MEMORY:
        yield fix("memory", found, "Close other programs, or ask Slurm for more with --mem=16G.")
    elif usable < ENOUGH_MEMORY:
        yield note("memory", found, "Train with small batches; close other notebooks.")
    else:
        yield ok("memory", found)


def disk(machine: Machine) -> Iterator[Finding]:
    """Space for results, and for the temporary files of the tools."""
    temporary = machine.environment.get("TMPDIR") or tempfile.gettempdir()
    yield _space(
        machine, "disk-runs", str(journal.runs_folder()), "set PROFLAB_RUNS to a folder elsewhere"
    )
    yield _space(machine, "disk-temporary", temporary, "set TMPDIR to a folder elsewhere")


def control_groups(machine: Machine, controller: str) -> list[str]:
    """Folders of this process's control group and of those above it, in version 2 or 1 of the
    kernel's interface.
    """
    found = []
    for line in (machine.read("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            root = "/sys/fs/cgroup"
        elif controller in names.split(","):
            root = f"/sys/fs/cgroup/{controller}"
        else:
            continue
        place = PurePosixPath(path)
        # The limits of all groups above hold, too.
        found += [f"{root}{part}".rstrip("/") for part in (place, *place.parents)]
    return found


def _cpu_quota(machine: Machine, folder: str) -> float | None:
    """Cores' worth of time in a control group; None without a limit."""
    words = (machine.read(f"{folder}/cpu.max") or "").split()
    if len(words) != 2:
        words = [
            (machine.read(f"{folder}/cpu.cfs_{name}_us") or "").strip()
            for name in ("quota", "period")
        ]
    # Without a limit it is `max` in version 2, and -1 in version 1.
    if all(word.isdigit() and int(word) > 0 for word in words):
        return int(words[0]) / int(words[1])
    return None


def _memory_limit(machine: Machine, folder: str) -> int | None:
    """Bytes that a control group may use; None without a limit, for which version 1 writes nearly
    2**63.
    """
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = _number(machine.read(f"{folder}/{name}"))
        if limit is not None and limit < 1 << 60:
            return limit
    return None


def _space(machine: Machine, key: str, folder: str, cure: str) -> Finding:
    space = machine.space(folder)
    shown = one_line(str(Path(folder)), 60)
    if space is None:
        return unknown(key, f"the space in {shown} can't be read")
    found = f"{size(space.free)} free in {shown}"
    if not space.writable:
        return fix(key, f"{shown} can't be written", f"Change its permissions, or {cure}.")
    if space.free < LITTLE_DISK:
        return fix(key, found, f"Make room, or {cure}.")
    if space.free < ENOUGH_DISK:
        return note(key, found, f"Enough for short runs; for long traces {cure}.")
    return ok(key, found)


def _number(text: str | None) -> int | None:
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


PROBES = (
    Probe(("perf-counters",), counters),
    Probe(("ptrace-scope",), attaching),
    Probe(("miopen-cache",), miopen_cache),
    Probe(("cores",), cores),
    Probe(("memory",), memory),
    Probe(("disk-runs", "disk-temporary"), disk),
)
