"""A call tree that shows which function called which, and how much time each function took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.analyses.common import host_events, percent, result, start_and_end
from tidyprof.names.cpp_symbols import parse
from tidyprof.tables.contract import Profile
from tidyprof.tables.launches import callers

_THREAD = ["rank", "process", "thread"]


@dataclass(frozen=True)
class _Frames:
    """Stack frames, each after the frame that encloses it.

    - events: the event rows of the frames.
    - parent: the position of the enclosing frame, or -1 for an outermost frame.
    """

    events: pd.DataFrame
    parent: np.ndarray


def call_stacks(
    profile: Profile, *, root: str | None = None, without: Iterable[str] = ()
) -> pd.DataFrame:
    """Return one row per thread and stack path, in depth-first order.

    A called function follows its caller directly. Among the calls of one caller, the longest call
    comes first.

    The tree comes from the call-stack samples of rocprof-sys or Perfetto's profilers. Without
    samples, it comes from events with a start and an end, such as operators, ranges and runtime
    calls. These events include Python functions if a torch trace was recorded with
    `with_stack=True` and read with `python_functions=True`.

    - root: a string that selects functions by name. Each stack starts at its outermost function
      whose name contains this string. Stacks without such a function are left out. This option
      makes stacks comparable if the profiler has cut their outer ends.
    - without: the names of functions to leave out. Their time then counts for their callers.
    - `short_name`: the name without C++ parameters and template arguments, and with only the
      innermost scope.
    - `parent`: the row label of the caller.
    - `depth`: the depth in the tree, starting at 0.
    - `count`: the number of samples that contain the path, or the number of calls to it.
    - `self_count`: the number of samples or calls for which no deeper function was recorded.
    - `total_ns`, `self_ns`: the time including and excluding called functions.
    - `percent`, `self_percent`: the shares of the outermost functions' total time (0-100). If the
      samples have no durations, these columns are shares of counts.

    To rank functions, add up the self columns by name. Don't add up the total columns, because they
    count a recursive function several times. `attrs["source"]` is `samples` or `calls`.

    Each sample represents the time since the previous sample, so the times are rough if there are
    few samples. Samples never show how often a function was called. Raises ValueError if no
    function name contains the string `root`.
    """
    frames = _sampled_frames(profile, without)
    source = "samples" if len(frames.events) else "calls"
    if source == "calls":
        frames = _called_frames(profile, without)
    if root is not None:
        frames = _below(frames, root)
    table = result(_tree(frames), "call_stacks", profile)
    table.attrs["source"] = source
    return table


def function_name(name: str) -> str:
    """Return the name of a C++ function with only the innermost scope, and the name of a Python
    function without its file.

    For example, `at::_ops::conv2d::call(at::Tensor const&)` becomes `conv2d::call`. A name without
    parameters or template arguments is returned unchanged.
    """
    symbol = parse(name.partition(" [clone")[0])
    if symbol is None:
        return name.partition(" (")[0] if name.endswith(".py)") else name
    return "::".join([*symbol.namespace[-1:], symbol.name])


def _sampled_frames(profile: Profile, without: Iterable[str]) -> _Frames:
    """Return the stack frames of samples.

    Readers number the samples, and they number the frames of each sample from the outermost frame
    inward.
    """
    events = profile.of_kind(("sample",))
    if "sample" not in events.columns:
        return _Frames(events.iloc[:0], np.empty(0, np.int64))
    events = events[events["sample"].notna() & ~events["name"].isin(list(without))]
    events = events.sort_values(["sample", "depth"], kind="stable")
    sample = events["sample"].to_numpy(np.int64)
    is_inner = np.append(False, sample[1:] == sample[:-1])[: len(sample)]
    return _Frames(events, np.where(is_inner, np.arange(len(sample)) - 1, -1))


def _called_frames(profile: Profile, without: Iterable[str]) -> _Frames:
    """Return the calls of host threads. Each call is nested in the call that was running on its
    thread when it started.
    """
    events = host_events(profile)
    events = events[~events["name"].isin(list(without))]
    thread = events.groupby(_THREAD, dropna=False, sort=False).ngroup().to_numpy()
    order, caller = callers(*start_and_end(events), thread)
    return _Frames(events.iloc[order], caller)


def _below(frames: _Frames, root: str) -> _Frames:
    """For each stack, return the outermost frame whose name contains the given string, and all
    frames inside this frame.
    """
    has_root = frames.events["name"].astype(str).str.contains(root, regex=False)
    if not has_root.any():
        raise ValueError(f"no function has {root!r} in its name")
    # The callers come first, so each frame finds the final value of its caller.
    is_inside: list[bool] = []
    for starts, above in zip(has_root.tolist(), frames.parent.tolist(), strict=True):
        is_inside.append(starts or (above >= 0 and is_inside[above]))
    inside = np.array(is_inside)
    position = np.where(inside, np.cumsum(inside) - 1, -1)
    parent = frames.parent[inside]
    return _Frames(frames.events[inside], np.where(parent >= 0, position[parent], -1))


def _tree(frames: _Frames) -> pd.DataFrame:
    events, parent = frames.events, frames.parent
    thread = events.groupby(_THREAD, dropna=False).ngroup().to_numpy()
    name, names = pd.factorize(events["name"].astype(str))
    # A path is the number of its caller's path and the frame's name. For the outermost frames, the
    # thread replaces the caller's path. The callers come first, so a caller's number is smaller.
    numbers: dict[tuple[int, int], int] = {}
    path_of: list[int] = []
    for above, frame_name, own in zip(parent.tolist(), name.tolist(), thread.tolist(), strict=True):
        key = (path_of[above] if above >= 0 else -1 - own, frame_name)
        path_of.append(numbers.setdefault(key, len(numbers)))
    path, nodes = np.array(path_of, np.int64), len(numbers)
    caller = np.array([max(above, -1) for above, _ in numbers], np.int64)
    depth: list[int] = []
    for above in caller.tolist():
        depth.append(depth[above] + 1 if above >= 0 else 0)
    first = np.unique(path, return_index=True)[1]
    is_innermost = np.ones(len(parent), bool)
    is_innermost[parent[parent >= 0]] = False
    total = _sums(path, events["duration_ns"].to_numpy(np.int64), nodes)
    called = caller >= 0
    short = np.array([function_name(text) for text in names], object)
    table = events[_THREAD].iloc[first].reset_index(drop=True)
    table = table.assign(
        thread_number=thread[first],
        name=np.asarray(names, object)[name[first]],
        short_name=short[name[first]],
        depth=depth,
        count=np.bincount(path, minlength=nodes),
        self_count=np.bincount(path[is_innermost], minlength=nodes),
        total_ns=total,
        # Rounding can make a call outlast its caller, so limit its time to the caller's time.
        self_ns=np.maximum(total - _sums(caller[called], total[called], nodes), 0),
    )
    measures = ["total_ns", "self_ns"] if total.any() else ["count", "self_count"]
    whole = table.loc[~called, measures[0]].sum()
    table[["percent", "self_percent"]] = percent(table[measures], whole)
    return _depth_first(table, caller)


def _sums(group: np.ndarray, values: np.ndarray, groups: int) -> np.ndarray:
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, values)
    return sums


def _depth_first(table: pd.DataFrame, caller: np.ndarray) -> pd.DataFrame:
    """Return the rows sorted by thread, with a column `parent`. Each row follows its caller or the
    calls of a sibling.
    """
    by = ["thread_number", "percent", "count", "name"]
    below: dict[int, list[int]] = {}
    for node in table.sort_values(by, ascending=[False, True, True, False]).index:
        below.setdefault(int(caller[node]), []).append(node)
    # Use an explicit stack because call stacks can exceed Python's recursion limit.
    order: list[int] = []
    waiting = below.get(-1, [])
    while waiting:
        order.append(waiting.pop())
        waiting += below.get(order[-1], [])
    # The extra element is for outermost rows, whose caller is -1. It is masked below.
    position = np.empty(len(table) + 1, np.int64)
    position[order] = np.arange(len(order))
    parent = pd.arrays.IntegerArray(position[caller[order]], caller[order] < 0)
    return table.iloc[order].assign(parent=parent)
