"""One played run for the contract of the readers: damaged once, then written in every format."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from cifar_train.config import TrainConfig
from gpumodel import Run, Training, simulate, writers
from gpumodel.run import RankRun, empty

FORMATS = ("kineto", "rocprofv3-csv", "rocprofv3-json", "perfetto", "rocprof-sys", "rocpd", "rpd")
"""Formats with a row per call and per event on the device; rocprof-compute has dispatches only."""

EVENTS = 400
"""What is kept of a step's 1518 on the device: enough for all kinds of work, and read in a third of
the time.
"""

FEW, MANY = 3, 24
"""Rows that are damaged: 0.8 percent of the device's, which is mended, and 6 percent, which is
refused.
"""

_ENDINGS = {
    "kineto": ".json",
    "rocprofv3-json": "_results.json",
    "perfetto": "_results.pftrace",
    "rocpd": "_results.db",
    "rpd": ".rpd",
}
TIED_NS = 1_234_567
_KNOWN_CALL, _OTHER_CALL = 123_456_789, 223_456_789
"""Correlation ids of equal length in text and in protobuf, so that one can be put for the other in
a file.
"""


@functools.cache
def played(ranks: int = 1) -> Run:
    """A step on that many of two ranks of the trainer, cut; without ranges, which three of the
    formats do not have.
    """
    run = simulate(Training(config=TrainConfig(max_steps=1, data="synthetic"), ranks=2))
    return replace(run, ranks=tuple(map(_ends, run.ranks[:ranks])))


def _ends(rank: RankRun) -> RankRun:
    """The first and the last events on the device, and no call that launched one of those between
    them.
    """
    work = rank.device_work
    cut = work.iloc[EVENTS // 2 : len(work) - EVENTS // 2]
    work = work.drop(index=cut.index).reset_index(drop=True)
    calls = rank.calls[~rank.calls["correlation_id"].isin(cut["correlation_id"])].reset_index(
        drop=True
    )
    return replace(
        rank,
        device_work=work,
        calls=calls,
        operators=empty("operators"),
        annotations=empty("annotations"),
    )


def damaged_rows(count: int) -> np.ndarray:
    """Places in `device_work` of that many kernels, spread over the run."""
    kernels = np.flatnonzero(played().ranks[0].device_work["kind"] == "kernel")
    return kernels[np.linspace(3, len(kernels) - 3, count).astype(int)]


def _with(count: int, change: Callable[[pd.DataFrame, np.ndarray], None]) -> Run:
    run = played()
    rank = run.ranks[0]
    work = rank.device_work.copy()
    change(work, damaged_rows(count))
    return replace(run, ranks=(replace(rank, device_work=work),))


def _set(column: str, value: int) -> Callable[[pd.DataFrame, np.ndarray], None]:
    def change(work: pd.DataFrame, rows: np.ndarray) -> None:
        work.loc[rows, column] = value

    return change


def _overlap(work: pd.DataFrame, rows: np.ndarray) -> None:
    """These kernels end in the middle of the next one."""
    following = work.loc[rows + 1, ["start_ns", "duration_ns"]].to_numpy()
    work.loc[rows, "duration_ns"] = (
        following[:, 0] + following[:, 1] // 2 - work.loc[rows, "start_ns"].to_numpy()
    )


def _shuffle(work: pd.DataFrame, rows: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(len(work))
    work[:] = work.iloc[order].reset_index(drop=True)


def _step_clock(work: pd.DataFrame, rows: np.ndarray) -> None:
    """The device's clock is set back by 50 ms in the middle of the run: work starts before its
    launch.
    """
    work.loc[work.index >= len(work) // 2, "start_ns"] -= 50_000_000


def _unfinish(work: pd.DataFrame, rows: np.ndarray) -> None:
    """The end was never written: it is 0."""
    work.loc[rows, "duration_ns"] = -work.loc[rows, "start_ns"]


_CHANGES = {
    "zero length": _set("duration_ns", 0),
    "overlapping": _overlap,
    "out of order": _shuffle,
    "clock stepped": _step_clock,
    "at time zero": _set("start_ns", 0),
    "negative": _set("duration_ns", -5),
    "start impossible": _set("start_ns", 2**62 + 5),
    "duration impossible": _set("duration_ns", 2**61 + 5),
    "unfinished": _unfinish,
}


@functools.cache
def damaged(damage: str) -> Run:
    """The run with a damage: `healthy`, or one of the above in a few rows, or in `many ...`."""
    if damage == "healthy":
        return played()
    if damage == "unlaunched":
        run = played()
        rank = run.ranks[0]
        lost = rank.device_work.loc[damaged_rows(FEW), "correlation_id"]
        calls = rank.calls[~rank.calls["correlation_id"].isin(lost)].reset_index(drop=True)
        return replace(run, ranks=(replace(rank, calls=calls),))
    return _with(
        MANY if damage.startswith("many ") else FEW, _CHANGES[damage.removeprefix("many ")]
    )


def write(name: str, run: Run, folder: Path, stem: str = "trace") -> Path:
    """Write the first rank of the run; the path to read. The files' names begin with `stem`, and
    say nothing else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rank = run.ranks[0].rank
    if name == "rocprofv3-csv":
        return writers.write(name, run, folder, rank=rank, prefix=stem)[0].parent
    if name == "rocprof-compute":
        return writers.write(name, run, folder, rank=rank, layout="wide", blocks=["2"])[0].parent
    options = {"kineto": {"compress": False}, "rpd": {"name": f"{stem}.rpd"}}.get(name, {})
    if name in ("rocprofv3-json", "perfetto", "rocpd"):
        options = {"prefix": stem}
    written = writers.write(name, run, folder, rank=rank, **options)
    if name == "rocprof-sys":
        trace = next(path for path in written if path.suffix == ".proto")
        return trace.rename(folder / f"{stem}.proto")
    return written[0].rename(folder / f"{stem}{_ENDINGS[name]}")


def write_damaged(name: str, damage: str, folder: Path) -> Path:
    """The damaged run in a format. Only torch's way to tell two of the faults has to be put into
    the file itself.
    """
    path = write(name, damaged(damage), folder)
    if name == "kineto" and damage.endswith("at time zero"):
        text = path.read_text()
        # Its times count from a base that is not the node's start.
        zero = min(re.findall(r'"ts": (\d+\.\d{3})', text), key=float)
        path.write_text(text.replace(f'"ts": {zero}', '"ts": 0.000'))
    if name == "kineto" and damage.endswith("unfinished"):
        end, marked = (
            r'"dur": -\d+\.\d+,\n    "args": {',
            '"dur": 1.000,\n    "args": {"finished": false,',
        )
        path.write_text(re.sub(end, marked, path.read_text()))
    return path


def write_with_two_calls(
    name: str, later_ns: int, longer_ns: int, folder: Path
) -> tuple[Path, pd.DataFrame]:
    """A second call, on another thread, has the correlation id of a kernel's launch.

    later_ns, longer_ns -- how much later it starts and longer it lasts than the launch; negative:
    earlier, shorter. Returns the path to read, and the two calls, the launch first. The kernel's
    duration is TIED_NS, as no other's.
    """
    run = played()
    rank = run.ranks[0]
    calls, work = rank.calls.copy(), rank.device_work.copy()
    kernel = int(damaged_rows(FEW)[1])
    launch = int(np.flatnonzero(calls["correlation_id"] == work.loc[kernel, "correlation_id"])[0])
    work.loc[kernel, ["correlation_id", "duration_ns"]] = [_KNOWN_CALL, TIED_NS]
    calls.loc[launch, "correlation_id"] = _KNOWN_CALL
    both = {rank.main_thread_id, rank.autograd_thread_id}
    (thread,) = both - {calls.loc[launch, "thread_id"]}
    second = calls.loc[[launch]].assign(correlation_id=_OTHER_CALL, thread_id=thread)
    second["start_ns"] += later_ns
    second["duration_ns"] += longer_ns
    calls = pd.concat([calls, second], ignore_index=True)
    path = write(name, replace(run, ranks=(replace(rank, calls=calls, device_work=work),)), folder)
    if name in ("rocpd", "rpd"):
        _share_call_in_database(path)
    else:
        for file in [path] if path.is_file() else sorted(path.iterdir()):
            file.write_bytes(_share_call(file.read_bytes(), name))
    return path, pd.concat([calls.loc[[launch]], second])


def _share_call(data: bytes, name: str) -> bytes:
    def encoded(number: int) -> bytes:
        if name not in ("perfetto", "rocprof-sys"):
            return str(number).encode()
        return bytes(
            [number >> shift & 127 | (128 if shift < 21 else 0) for shift in (0, 7, 14, 21)]
        )

    return data.replace(encoded(_OTHER_CALL), encoded(_KNOWN_CALL))


def _share_call_in_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        if "rocpd_api_ops" in tables:
            # The second call is the last that was written; the operation is the one with the
            # kernel's duration.
            database.execute(
                "INSERT INTO rocpd_api_ops (api_id, op_id) SELECT (SELECT max(id) FROM rocpd_api),"
                " id FROM rocpd_op "
                f'WHERE "end" - start = {TIED_NS}'
            )
            return
        event = next(name for name in tables if name.startswith("rocpd_event"))
        database.execute(
            f'UPDATE "{event}" SET stack_id = {_KNOWN_CALL} WHERE stack_id = {_OTHER_CALL}'
        )
