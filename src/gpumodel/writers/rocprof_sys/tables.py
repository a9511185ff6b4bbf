"""Tables of rocprof-sys's profiles as the library timemory writes them, in JSON and in text.

Layout: real files of rocprof-sys 1.2.0; source of timemory: https://github.com/ROCm/timemory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf, sqrt
from pathlib import Path
from typing import Any

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.files import put
from gpumodel.writers.perfetto.writer import executed_work, thread_indices

LONGEST_LABEL = 120
"""Longest label in text, in bytes; a longer one is cut and ends in three dots."""

_HASHES = 2**64


@dataclass
class Node:
    """One label at one place of the call tree, with what its calls took in the metric's values (ns
    for times).

    thread  -- number of the thread, from 0.
    total   -- sum over all calls; a parent's total includes those of its children.
    squares -- sum of the squares.
    """

    label: str
    thread: int
    depth: int = 0
    count: int = 0
    total: float = 0
    squares: float = 0
    shortest: float = inf
    longest: float = 0
    children: dict[str, Node] = field(default_factory=dict)

    def add(self, value: float) -> None:
        """Count one call."""
        self.count += 1
        self.total += value
        self.squares += value * value
        self.shortest = min(self.shortest, value)
        self.longest = max(self.longest, value)

    def child(self, label: str) -> Node:
        """The node of this label right below."""
        found = self.children.get(label)
        if found is None:
            found = self.children[label] = Node(label, self.thread, self.depth + 1)
        return found

    def below(self) -> Iterable[Node]:
        """This node and all nodes below it, each of them right before those that it calls."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children.values()))

    @property
    def prefix(self) -> str:
        """The label as timemory shows it, after the number of the thread, an indentation and a
        branch.
        """
        branch = "  " * (self.depth - 1) + "|_" if self.depth else ""
        return f"|{self.thread}>>> {branch}{self.label}"

    @property
    def deviation(self) -> float:
        """Standard deviation of the sample; 0 for a single call."""
        if self.count < 2:
            return 0.0
        return sqrt(
            max(0.0, (self.squares - self.total * self.total / self.count) / (self.count - 1))
        )

    @property
    def own_percent(self) -> float:
        """Share of the total that belongs to no child, in percent."""
        below = sum(child.total for child in self.children.values())
        return 100 * max(0.0, self.total - below) / self.total if self.total else 0.0


@dataclass(frozen=True)
class Metric:
    """What a table measures.

    unit, scale -- unit that the file shows, and the factor from a node's values to it.
    statistics -- whether smallest, largest, mean and deviation are known.
    in_ns      -- whether JSON has whole nanoseconds beside the seconds that are shown; clocks have
                  them.
    properties -- what JSON states about timemory's component.
    """

    name: str
    description: str
    unit: str
    scale: float = 1
    statistics: bool = False
    in_ns: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)


WALL_CLOCK = Metric(
    "wall_clock",
    "Real-clock timer (i.e. wall-clock timer)",
    "sec",
    1e-9,
    statistics=True,
    in_ns=True,
    properties={
        "value": 78,
        "enum": "WALL_CLOCK",
        "id": "wall_clock",
        "ids": ["real_clock", "virtual_clock", "wall_clock"],
    },
)
SAMPLED_TIME = Metric(
    "sampling_wall_clock", "Wall clock time (via sampling)", "sec", 1e-9, statistics=True
)
SAMPLED_SHARE = Metric("sampling_percent", "Percentage of samples", "%")
SAMPLED_COUNT = Metric(
    "trip_count",
    "Counts number of invocations",
    "",
    properties={"value": 61, "enum": "TRIP_COUNT", "id": "trip_count", "ids": ["trip_count"]},
)


def write_table(metric: Metric, roots: Sequence[Node], process: int, stem: Path) -> list[Path]:
    """Write `<stem>.json` and `<stem>.txt`; returns the two files. process -- its id."""
    nodes = [node for root in roots for node in root.below()]
    document = json.dumps(_document(metric, roots, nodes, process), separators=(",", ":"))
    texts = {"json": document, "txt": _text(metric, nodes)}
    return [put(stem.with_name(f"{stem.name}.{ending}"), text) for ending, text in texts.items()]


def hash_of(label: str) -> int:
    """A number for a label; timemory's own hash function differs between builds."""
    return int.from_bytes(blake2b(label.encode(), digest_size=8).digest(), "little")


def _document(
    metric: Metric, roots: Sequence[Node], nodes: Sequence[Node], process: int
) -> dict[str, Any]:
    graph: list[dict[str, Any]] = []
    rolling: list[int] = []
    # timemory tells equal labels apart by the sum of the hashes from the root to the node.
    for node in nodes:
        del rolling[node.depth :]
        rolling.append(((rolling[-1] if rolling else 0) + hash_of(node.label)) % _HASHES)
        entry = {"hash": hash_of(node.label), "prefix": node.prefix, "depth": node.depth}
        graph.append(entry | _numbers(metric, node) | {"rolling_hash": rolling[-1]})
    content = {
        "properties": {"cereal_class_version": 0, **metric.properties},
        "type": metric.name,
        "description": metric.description,
        "unit_value": round(1 / metric.scale),
        "unit_repr": metric.unit,
        "thread_scope_only": False,
        "thread_count": len({node.thread for node in nodes}),
        **dict.fromkeys(("mpi_size", "upcxx_size", "process_count", "num_ranks", "concurrency"), 1),
        "ranks": [{"rank": 0, "graph_size": len(graph), "graph": graph}],
        "graph": [[_tree(metric, root, process) for root in roots]],
    }
    return {"timemory": {metric.name: content}}


def _numbers(metric: Metric, node: Node) -> dict[str, Any]:
    """What JSON states about a node, including what it calls."""
    shown = node.total * metric.scale
    exact = {"value": node.total, "accum": node.total} if metric.in_ns else {"value": shown}
    return {
        "entry": {"laps": node.count, **exact, "repr_data": shown, "repr_display": shown},
        "stats": _statistics(metric, node),
    }


def _statistics(metric: Metric, node: Node) -> dict[str, Any]:
    if not metric.statistics:
        return {}
    scale = metric.scale
    return {
        "sum": node.total * scale,
        "count": node.count,
        "min": node.shortest * scale,
        "max": node.longest * scale,
        "sqr": node.squares * scale * scale,
        "mean": node.total * scale / node.count,
        "stddev": node.deviation * scale,
    }


def _tree(metric: Metric, node: Node, process: int) -> dict[str, Any]:
    """The node and all that it calls, as the second half of the JSON has them: the node's own part
    stands beside the whole.
    """
    own = Node(
        node.label, node.thread, count=node.count, shortest=node.shortest, longest=node.longest
    )
    own.total = node.total - sum(child.total for child in node.children.values())
    own.squares = node.squares - sum(child.squares for child in node.children.values())
    described = {
        "hash": hash_of(node.label),
        "prefix": node.label,
        "tid": [node.thread],
        "pid": [process],
    }
    described |= {"depth": node.depth + 1, "is_dummy": False}
    both = {"inclusive": _numbers(metric, node), "exclusive": _numbers(metric, own)}
    return {
        "node": described | both,
        "children": [_tree(metric, child, process) for child in node.children.values()],
    }


def _text(metric: Metric, nodes: Sequence[Node]) -> str:
    rows = [_cells(metric, node) for node in nodes]
    names = list(rows[0]) if rows else ["LABEL", "COUNT", "DEPTH", "METRIC", "UNITS", "SUM"]
    widths = {name: max([len(name), 6, *(_bytes(row[name]) for row in rows)]) for name in names}
    header = "|".join(_centred(name, widths[name] + 2) for name in names)
    rule = "-" * len(header)
    lines = [rule, _centred(metric.description.upper(), len(header)), rule, header]
    lines.append("|".join("-" * (widths[name] + 2) for name in names))
    for row in rows:
        lines.append(
            "|".join(f" {_aligned(name, text, widths[name])} " for name, text in row.items())
        )
    return "".join(f"|{line}|\n" for line in [*lines, rule])


def _cells(metric: Metric, node: Node) -> dict[str, str]:
    label = node.prefix
    if _bytes(label) > LONGEST_LABEL:
        label = label.encode()[: LONGEST_LABEL - 3].decode("utf-8", "ignore") + "..."
    digits = {"sec": 6, "%": 3}.get(metric.unit, 0)
    cells = {
        "LABEL": label,
        "COUNT": str(node.count),
        "DEPTH": str(node.depth),
        "METRIC": metric.name,
    }
    if metric.unit:
        cells["UNITS"] = metric.unit
    cells["SUM"] = f"{node.total * metric.scale:.{digits}f}"
    if metric.statistics:
        scale, deviation = metric.scale, node.deviation * metric.scale
        shown = {
            "MEAN": node.total / node.count * scale,
            "MIN": node.shortest * scale,
            "MAX": node.longest * scale,
        }
        shown |= {"VAR": deviation**2, "STDDEV": deviation}
        cells |= {name: f"{value:.{digits}f}" for name, value in shown.items()}
        cells["% SELF"] = f"{node.own_percent:.1f}"
    return cells


def _aligned(name: str, text: str, width: int) -> str:
    blank = " " * (width - _bytes(text))
    return text + blank if name in ("LABEL", "METRIC", "UNITS") else blank + text


def _bytes(text: str) -> int:
    """Width of a text: the tool, in C++, counts bytes, not characters."""
    return len(text.encode())


def _centred(text: str, width: int) -> str:
    left = max(0, (width - len(text)) // 2)
    return (" " * left + text).ljust(width)


def timed_regions(run: Run, rank: RankRun, program: str, ranges: bool) -> list[Node]:
    """The program, and below it the ranges and HIP calls of each thread; kernels have trees of
    their own.

    rocprof-sys counts a kernel on the thread that launched it, but outside of what runs there,
    since it learns of the kernel only when the buffer of records is full.
    """
    indices = thread_indices(rank)
    columns = ["thread_id", "start_ns", "duration_ns", "name"]
    regions = [rank.annotations[columns]] if ranges else []
    nodes: list[Node] = []
    for thread, rows in pd.concat([*regions, rank.calls[columns]]).groupby("thread_id"):
        root = Node("", indices[thread], -1)
        if thread == rank.main_thread_id:
            root = Node(program, indices[thread])
            root.add(run.end_ns - run.start_ns)
        _nest(root, rows)
        nodes += [root] if root.label else root.children.values()
    return sorted([*nodes, *_kernels(rank)], key=lambda node: node.thread)


def _nest(root: Node, rows: pd.DataFrame) -> None:
    """Count each region of one thread below the region that encloses it."""
    ordered = rows.sort_values(["start_ns", "duration_ns"], ascending=[True, False], kind="stable")
    open_nodes: list[tuple[int, Node]] = []
    for start, duration, name in zip(
        *(ordered[c].tolist() for c in ("start_ns", "duration_ns", "name")), strict=True
    ):
        while open_nodes and open_nodes[-1][0] < start + duration:
            open_nodes.pop()
        node = (open_nodes[-1][1] if open_nodes else root).child(name)
        node.add(duration)
        open_nodes.append((start + duration, node))


def _kernels(rank: RankRun) -> list[Node]:
    work = executed_work(rank)
    kernels = work[work["kernel_id"] > 0]
    found: dict[tuple[int, str], Node] = {}
    columns = ("thread_index", "name", "duration_ns")
    for thread, name, duration in zip(
        *(kernels[column].tolist() for column in columns), strict=True
    ):
        node = found.get((thread, name))
        if node is None:
            node = found[thread, name] = Node(name, thread)
        node.add(duration)
    return list(found.values())


def sampled_time(run: Run, rank: RankRun) -> list[Node]:
    """Call tree of the samples. Each sample counts the time since the one before on its thread, in
    ns.
    """
    indices = thread_indices(rank)
    roots: list[Node] = []
    for thread, rows in rank.samples.groupby("thread_id", sort=False):
        top = Node("", indices.setdefault(thread, len(indices)), -1)
        before = run.start_ns
        for time, stack in zip(rows["time_ns"].tolist(), rows["stack"].tolist(), strict=True):
            node = top
            for function in stack:
                node = node.child(function)
                node.add(time - before)
            before = time
        roots += top.children.values()
    return roots


def counted(roots: list[Node]) -> list[Node]:
    """The same trees with the number of samples of each function in place of their time."""
    found = []
    for root in roots:
        copy = Node(root.label, root.thread, root.depth, root.count, root.count)
        copy.children = {child.label: child for child in counted(list(root.children.values()))}
        found.append(copy)
    return found


def sampled_shares(rank: RankRun) -> list[Node]:
    """Share of each function in the frames of its thread, in percent. A function that is twice in a
    stack counts twice.
    """
    indices = thread_indices(rank)
    found = []
    for thread, rows in rank.samples.groupby("thread_id", sort=False):
        frames = Counter(function for stack in rows["stack"] for function in stack)
        index = indices.setdefault(thread, len(indices))
        total = frames.total()
        found += [
            Node(name, index, count=count, total=100 * count / total)
            for name, count in frames.items()
        ]
    return found
