"""Which processor cores are near which GPU, on four machines, and whether a binding respects it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.errors import CourseError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Node:
    """One node of a machine, as its documentation prints it.

    cores -- for each GPU, in the order of its numbers, the first and the last core near it; reserved -- cores that a
    job does not get; option -- what its launcher calls a binding; source -- address of the documentation.
    """

    name: str
    gpu: str
    cores: tuple[tuple[int, int], ...]
    numa: tuple[int, ...]
    reserved: frozenset[int] = field(default_factory=frozenset)
    option: str = "mask_cpu"
    source: str = ""

    def near_cores(self, gpu: int) -> frozenset[int]:
        """The cores near a GPU that a job may use."""
        first, last = self.cores[gpu]
        return frozenset(range(first, last + 1)) - self.reserved

    @property
    def all_cores(self) -> frozenset[int]:
        """Every core that stands near some GPU, reserved ones included."""
        return frozenset(core for first, last in self.cores for core in range(first, last + 1))

    @property
    def table(self) -> pd.DataFrame:
        """One row per GPU. Columns: gpu, numa_node, cores (near it), reserved (of these)."""
        import pandas as pd

        rows = []
        for gpu, ((first, last), numa) in enumerate(zip(self.cores, self.numa, strict=True)):
            kept = sorted(self.reserved & set(range(first, last + 1)))
            rows.append({"gpu": gpu, "numa_node": numa, "cores": f"{first}-{last}", "reserved": _ranges(kept)})
        table = pd.DataFrame(rows)
        table.attrs["origin"] = f"documented: {self.source}"
        return table


def _trento(name: str, source: str) -> Node:
    """LUMI's and Frontier's node: eight groups of eight cores, of which the first is reserved."""
    firsts = (48, 56, 16, 24, 0, 8, 32, 40)
    cores = tuple((first, first + 7) for first in firsts)
    numa = tuple(first // 16 for first in firsts)
    return Node(name, "MI250X, half a card each", cores, numa, frozenset(firsts), source=source)


NODES: dict[str, Node] = {
    node.name: node
    for node in (
        _trento("LUMI", "docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/distribution-binding"),
        _trento("Frontier", "docs.olcf.ornl.gov/systems/frontier_user_guide.html"),
        Node(
            "MI300X server",
            "MI300X",
            ((0, 31),) * 4 + ((32, 63),) * 4,
            (0,) * 4 + (1,) * 4,
            source="github.com/ROCm/llvm-project/pull/4394 (`gpurun -topo` on two processors of 32 cores)",
        ),
        Node(
            "Aurora",
            "Intel Max 1550, half a card each",
            ((0, 51),) * 6 + ((52, 103),) * 6,
            (0,) * 6 + (1,) * 6,
            frozenset((0, 52)),
            option="list",
            source="docs.alcf.anl.gov/aurora/running-jobs-aurora",
        ),
    )
}
"""The machines by name. Cores are counted without the second thread of each; of processors with memory modes the
usual one. The MI300X server is an example: count your own with `lscpu` and `amd-smi topology`."""


def node_topology(name: str) -> Node:
    """The node of a machine; raises CourseError for an unknown one."""
    if name not in NODES:
        raise CourseError(f"there is no machine {name!r}: {near(name, NODES)}")
    return NODES[name]


def machines() -> pd.DataFrame:
    """One row per machine. Columns: machine, gpu, gpus, cores_of_gpu_0, cores_of_last_gpu, reserved."""
    import pandas as pd

    rows = [
        {
            "machine": node.name,
            "gpu": node.gpu,
            "gpus": len(node.cores),
            "cores_of_gpu_0": "-".join(map(str, node.cores[0])),
            "cores_of_last_gpu": "-".join(map(str, node.cores[-1])),
            "reserved": ", ".join(map(str, sorted(node.reserved))) or "none",
        }
        for node in NODES.values()
    ]
    table = pd.DataFrame(rows)
    table.attrs["origin"] = "documented: LUMI, OLCF and ALCF user guides, AMD's gpurun"
    return table


def least_cores() -> int:
    """Cores that a rank of the course's trainer needs: one for each loader process, and its own."""
    from cifar_train.config import TrainConfig

    return TrainConfig().num_workers + 1


def example_binding(node: Node) -> list[str]:
    """One right binding: GPUs that stand near the same cores share them equally."""
    found = []
    for gpu, own in enumerate(node.cores):
        sharing = [other for other, cores in enumerate(node.cores) if cores == own]
        usable = sorted(node.near_cores(gpu))
        size, place = len(usable) // len(sharing), sharing.index(gpu)
        found.append(_ranges(usable[place * size : (place + 1) * size]))
    return found


def cpu_bind(binding: Sequence[str], node: Node) -> str:
    """The binding as a launcher's option: masks for srun (man srun, --cpu-bind), a list for Aurora's mpiexec."""
    if node.option == "list":
        return "--cpu-bind=list:" + ":".join(text.replace(" ", "") for text in binding)
    masks = (sum(1 << core for core in parsed(text)) for text in binding)
    return "--cpu-bind=mask_cpu:" + ",".join(f"{mask:x}" for mask in masks)


def parsed(text: str) -> frozenset[int]:
    """The cores of a text such as `49-55` or `1,2,4-6`. Raises ValueError for another one."""
    cores: set[int] = set()
    for part in str(text).replace(" ", "").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"`{text}` is no list of cores such as `49-55` or `1,2,4-6`")
        cores.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cores)


def binding_problem(answer: Any, node: Node) -> str | None:
    """What is wrong with a binding (for each local rank the text of its cores), None if it is good.

    Local rank and GPU have the same number, as in `cifar_train`.
    """
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        return f"A list of {len(node.cores)} texts is asked, one per local rank."
    if len(answer) != len(node.cores):
        return f"{len(answer)} ranks are bound, the node has {len(node.cores)} GPUs: one entry each."
    try:
        ranks = [parsed(text) for text in answer]
    except ValueError as error:
        return f"{error}."
    for rank, cores in enumerate(ranks):
        if problem := _rank_problem(rank, cores, node):
            return problem
    for rank, cores in enumerate(ranks):
        for other in range(rank):
            if shared := cores & ranks[other]:
                return f"Ranks {other} and {rank} share the cores {_ranges(sorted(shared))}: they would take turns."
    return None


def _rank_problem(rank: int, cores: frozenset[int], node: Node) -> str | None:
    shown = _ranges(sorted(cores))
    if lost := cores & node.reserved:
        return f"Rank {rank}: core {min(lost)} is reserved for the system, a job does not get it."
    if lost := cores - node.all_cores:
        return f"Rank {rank}: there is no core {min(lost)} on this node."
    if cores - node.near_cores(rank):
        first, last = node.cores[rank]
        return f"Rank {rank} is on {shown}, but the cores near GPU {rank} are {first}-{last}: read the table by GPU."
    if len(cores) < least_cores():
        return f"Rank {rank} has {len(cores)} cores; with its loader processes it needs {least_cores()}."
    return None


def _ranges(cores: Sequence[int]) -> str:
    """Sorted cores as text: 1, 2, 3, 7 becomes `1-3,7`."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
