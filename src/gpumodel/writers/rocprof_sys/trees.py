"""Call trees of a rank for rocprof-sys's tables: timed regions, and sampled stacks."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.perfetto.events import executed_work, thread_indices
from gpumodel.writers.rocprof_sys.tables import Node


def timed_regions(run: Run, rank: RankRun, program: str, ranges: bool) -> list[Node]:
    """The program, and below it on each thread its ranges and HIP calls; kernels in trees of their own.

    rocprof-sys counts a kernel on the thread that launched it, outside of what runs there, as it does not know
    about it before the buffer of records is full.
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
    """Count regions of one thread below the region that encloses them."""
    ordered = rows.sort_values(["start_ns", "duration_ns"], ascending=[True, False], kind="stable")
    open_nodes: list[tuple[int, Node]] = []
    for start, duration, name in zip(*(ordered[c].tolist() for c in ("start_ns", "duration_ns", "name")), strict=True):
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
    for thread, name, duration in zip(*(kernels[column].tolist() for column in columns), strict=True):
        node = found.get((thread, name))
        if node is None:
            node = found[thread, name] = Node(name, thread)
        node.add(duration)
    return list(found.values())


def sampled_time(run: Run, rank: RankRun) -> list[Node]:
    """Call tree of the samples: each counts the time since its thread's sample before it, in ns."""
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
    """The same tree with how often each function stood there instead of how long."""
    found = []
    for root in roots:
        copy = Node(root.label, root.thread, root.depth, root.count, root.count)
        copy.children = {child.label: child for child in counted(list(root.children.values()))}
        found.append(copy)
    return found


def sampled_shares(rank: RankRun) -> list[Node]:
    """Share of each function in the frames of its thread, in percent; a function twice in a stack counts twice."""
    indices = thread_indices(rank)
    found = []
    for thread, rows in rank.samples.groupby("thread_id", sort=False):
        frames = Counter(function for stack in rows["stack"] for function in stack)
        index = indices.setdefault(thread, len(indices))
        total = frames.total()
        found += [Node(name, index, count=count, total=100 * count / total) for name, count in frames.items()]
    return found
