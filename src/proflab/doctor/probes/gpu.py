"""GPUs, their driver, the permission to use them, and which of them are visible.

The files of AMD's kernel driver: /dev/kfd, /dev/dri/renderD* and /sys/class/kfd/kfd/topology/nodes
(amdkfd, drivers/gpu/drm/amd/amdkfd/kfd_topology.c in the Linux sources).
Groups: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html.
Visibility variables: https://rocm.docs.amd.com/en/docs-7.1.1/reference/env-variables.html.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from proflab.doctor.findings import Finding, Issue, Probe, fix, not_needed, note, ok, unknown
from proflab.doctor.machine import Machine

KFD = "/dev/kfd"
DRI = "/dev/dri"
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"
AMD_VENDOR = "0x1002"
COMPUTE_CLASSES = ("0x1200", "0x0380")
"""PCI classes of Instinct cards: processing accelerator, and display controller without a display.
"""

NO_GPU_HINT = "Nothing to do: every lesson also works on recordings."
JOB_HINT = f"{NO_GPU_HINT} On a cluster, start JupyterLab in a job with `scripts/slurm/jupyter.sh`."


def architecture(properties: str) -> str | None:
    """The architecture in a node's file `properties`, such as gfx942; None for a processor, which
    has no SIMD units.

    `gfx_target_version` is major * 10000 + minor * 100 + stepping.
    """
    values = dict(
        line.split(maxsplit=1) for line in properties.splitlines() if len(line.split()) == 2
    )
    try:
        is_gpu, version = (
            int(values.get("simd_count", 0)) > 0,
            int(values.get("gfx_target_version", 0)),
        )
    except ValueError:
        return None
    # A name has the minor number and the stepping in hexadecimal: 90010 is gfx90a.
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if is_gpu else None


def architectures(machine: Machine) -> tuple[str, ...]:
    """The architecture of each AMD GPU that the driver lists, even if this user may not use it."""
    if not machine.exists(KFD):
        return ()
    nodes = sorted((name for name in machine.names(TOPOLOGY) if name.isdigit()), key=int)
    found = (architecture(machine.read(f"{TOPOLOGY}/{node}/properties") or "") for node in nodes)
    return tuple(name for name in found if name)


def has_amd_gpu(machine: Machine) -> bool:
    """Whether there is an AMD GPU that ROCm programs could reach."""
    return machine.exists(KFD) and (bool(architectures(machine)) or bool(_render_devices(machine)))


def amd_gpu(machine: Machine) -> Iterator[Finding]:
    """How many AMD GPUs there are, and of which architecture."""
    ask = "Ask `rocminfo` or `amd-smi list`"
    if found := architectures(machine):
        yield ok(
            "amd-gpu", ", ".join(f"{count} x {name}" for name, count in Counter(found).items())
        )
    elif machine.exists(KFD):
        text = f"{KFD} is there, but the driver's list shows no GPU"
        yield unknown("amd-gpu", text, f"{ask}; in a job, ask for a GPU.")
    elif _has_idle_card(machine):
        cure = (
            "Load the driver (`sudo modprobe amdgpu`); start a container with --device=/dev/kfd"
            " --device=/dev/dri."
        )
        yield fix("amd-gpu", f"a card is built in, but there is no {KFD}", cure, Issue.NO_KFD)
    elif not machine.names("/sys"):
        yield unknown("amd-gpu", "no /sys to look into", f"{ask}.")
    else:
        hint = JOB_HINT if machine.which("srun") else NO_GPU_HINT
        yield note("amd-gpu", "none here", hint)


def driver(machine: Machine) -> Iterator[Finding]:
    """The kernel module amdgpu: its version, which only AMD's own package states."""
    if not machine.exists("/sys/module/amdgpu"):
        row = unknown if machine.exists(KFD) else not_needed
        yield row("amd-driver", "the module amdgpu is not loaded, or hidden from here")
    else:
        version = machine.read("/sys/module/amdgpu/version") or ""
        yield ok("amd-driver", f"amdgpu {version}" if version else "amdgpu of the Linux kernel")


def access(machine: Machine) -> Iterator[Finding]:
    """Whether this user may open the driver's device files."""
    if not machine.exists(KFD):
        yield not_needed("gpu-access", "no AMD GPU")
        return
    closed = [path for path in (KFD, *_render_devices(machine)) if not machine.may_use(path)]
    if not closed:
        yield ok("gpu-access", f"{KFD} and {len(_render_devices(machine))} render devices open")
        return
    wanted = sorted({machine.group_of(path) or "render" for path in closed})
    missing = [name for name in wanted if name not in machine.groups()]
    found = f"{closed[0]} is closed to you although you are in its group"
    cure = "Log in again; in a container pass --group-add; in a job ask for a GPU with --gpus."
    if missing:
        found = f"{closed[0]} is closed to you: not in group {' or '.join(missing)}"
        cure = (
            f"`sudo usermod -aG {','.join(missing)} $USER`, then log in again; on a cluster ask the"
            " support."
        )
    yield fix("gpu-access", found, cure, Issue.NO_RENDER_GROUP)


def visibility(machine: Machine) -> Iterator[Finding]:
    """Variables that hide GPUs. HIP counts the GPUs that ROCR has left, so two masks together can
    leave none.
    """
    names = (
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
    )
    masks = {
        name: machine.environment[name].strip() for name in names if name in machine.environment
    }
    shown = ", ".join(f"{name}={value}" for name, value in masks.items())
    outer = masks.get("ROCR_VISIBLE_DEVICES")
    # HIP also obeys CUDA's variable, if its own is not set.
    inner = masks.get("HIP_VISIBLE_DEVICES", masks.get("CUDA_VISIBLE_DEVICES"))
    if any(value in ("", "-1") for value in masks.values()):
        cure = f"`unset {' '.join(masks)}` in a shell, or let Slurm set them."
        row = fix if has_amd_gpu(machine) or has_nvidia_gpu(machine) else note
        yield row("gpu-visibility", f"{shown} hides every GPU", cure, Issue.DOUBLE_MASKING)
    elif outer and inner and _reaches_outside(inner, len(outer.split(","))):
        cure = (
            "Unset the second one: after ROCR_VISIBLE_DEVICES the remaining GPUs are counted"
            " from 0."
        )
        yield fix("gpu-visibility", f"{shown} leave no GPU", cure, Issue.DOUBLE_MASKING)
    else:
        yield ok("gpu-visibility", shown or "no variable hides a GPU")


def nvidia_gpu(machine: Machine) -> Iterator[Finding]:
    """NVIDIA GPUs and their driver, as nvidia-smi states them."""
    if machine.which("nvidia-smi") is None:
        is_there = has_nvidia_gpu(machine) or machine.exists("/proc/driver/nvidia/version")
        yield (
            unknown("nvidia-gpu", "no nvidia-smi")
            if is_there
            else not_needed("nvidia-gpu", "none here")
        )
        return
    answer = machine.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    # Other lines are messages.
    rows = [line.split(",") for line in answer.out.splitlines() if line.count(",") == 1]
    if answer.end == "time-out":
        text = f"nvidia-smi gives no answer in {machine.patience_s:g} s"
        yield unknown("nvidia-gpu", text, "Run `nvidia-smi` yourself; the driver may hang.")
    elif not answer.succeeded or not rows:
        text = f"nvidia-smi fails: {answer.last_line or 'no GPU listed'}"
        yield note("nvidia-gpu", text, "Without an NVIDIA GPU this doesn't matter.")
    else:
        kinds = ", ".join(
            f"{count} x {name}" for name, count in Counter(row[0] for row in rows).items()
        )
        yield ok("nvidia-gpu", f"{kinds}, driver {rows[0][1].strip()}")


def has_nvidia_gpu(machine: Machine) -> bool:
    """Whether the device file of an NVIDIA GPU is here."""
    return machine.exists("/dev/nvidia0")


def _render_devices(machine: Machine) -> list[str]:
    return [f"{DRI}/{name}" for name in machine.names(DRI) if name.startswith("renderD")]


def _has_idle_card(machine: Machine) -> bool:
    """Whether the PCI bus has an AMD card made for computing."""
    for name in machine.names(PCI):
        vendor = (machine.read(f"{PCI}/{name}/vendor") or "").strip()
        kind = (machine.read(f"{PCI}/{name}/class") or "").strip()
        if vendor == AMD_VENDOR and kind.startswith(COMPUTE_CLASSES):
            return True
    return False


def _reaches_outside(inner: str, count: int) -> bool:
    """Whether every index of `inner` is `count` or more. Names (UUIDs) are not judged."""
    indices = [part.strip() for part in inner.split(",")]
    return all(part.isdigit() and int(part) >= count for part in indices)


PROBES = (
    Probe(("amd-gpu",), amd_gpu),
    Probe(("amd-driver",), driver),
    Probe(("gpu-access",), access),
    Probe(("gpu-visibility",), visibility),
    Probe(("nvidia-gpu",), nvidia_gpu),
)
