"""Whatever a sound file holds is in a table, or is counted: among what was not kept, or what was
left out.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof import Profile
from tidyprof_tests import (
    chrome_writer,
    perfetto_writer,
    rocpd_writer,
    rocprofv3_writer,
    rpd_writer,
    snapshot_writer,
)
from tidyprof_tests.compute_writer import START_NS as COMPUTE_START_NS
from tidyprof_tests.compute_writer import Dispatch, long_rows, wide_rows, write_folder

BASE = 10**9
SPACE_NS = 10_000
"""From the start of an event to the next one's, longer than any lasts: none is within another, or
over it.
"""

NAMES = (
    "gemm<float>",
    "relu",
    "ncclDevKernel_Generic",
    "__amd_rocclr_fillBufferAligned",
    "_Z4gemmPf",
    "hipFoo",
)


@dataclass(frozen=True)
class Made:
    """An event. kind -- what its format calls it; start, duration -- in ns after the start of the
    file.
    """

    kind: str
    name: str
    start: int
    duration: int
    place: int


Write = Callable[[Path, list[Made]], tuple[Path, int]]
"""Writes the events, and returns the path to read and the time that their starts count from, in
ns.
"""


def torch(folder: Path, made: list[Made]) -> tuple[Path, int]:
    def event(one: Made) -> chrome_writer.TraceEvent:
        arguments = {"correlation": one.place + 1, "External id": one.place + 1}
        if one.kind in (
            "kernel",
            "Kernel",
            "gpu_memcpy",
            "Memcpy",
            "gpu_memset",
            "gpu_user_annotation",
        ):
            arguments |= {"device": one.place % 2, "stream": 7}
        return chrome_writer.TraceEvent(
            one.kind, one.name, BASE + one.start, one.duration, arguments=arguments
        )

    known = chrome_writer.TraceEvent("cpu_op", "first", BASE - 5_000, 100)
    path = chrome_writer.write_trace(folder / "t.json", [known, *map(event, made)])
    return path, BASE + chrome_writer.BASE_NS


def rpd(folder: Path, made: list[Made]) -> tuple[Path, int]:
    writer = rpd_writer.RpdWriter(folder / "x.rpd", version=2 + len(made) % 2)
    writer.call("hipInit", 0, 10)  # a file of samples alone is refused
    for one in made:
        if one.kind == "call":
            writer.call(f"hip{one.name}", one.start, one.duration)
        elif one.kind == "UserMarker":
            text = f"{one.name}, op_id = 7" if one.place % 2 else one.name
            writer.call("UserMarker", one.start, one.duration, args=text)
        elif one.kind == "monitor":
            writer.monitor("800", one.start, one.start + one.duration)
        else:
            name = one.name if one.kind in ("KernelExecution", "Task") else ""
            writer.operation(one.kind, name, one.start, one.duration)
    return writer.close(), rpd_writer.START_NS


def rocpd(folder: Path, made: list[Made]) -> tuple[Path, int]:
    writer = rocpd_writer.RocpdWriter(folder / "x_results.db", views=bool(len(made) % 2))
    for one in made:
        if one.kind == "kernel":
            event = writer.kernel(
                one.name, one.start, one.duration, correlation=0, gpu=one.place % 2
            )
            if one.place % 3 == 0:
                writer.counter("SQ_WAVES", event, [1.0, 2.0])
        elif one.kind == "copy":
            event = writer.event("MEMORY_COPY", 0)
            begin = rocpd_writer.START_NS + one.start
            row = {
                "start": begin,
                "end": begin + one.duration,
                "src_agent_id": 0,
                "dst_agent_id": 4,
                "size": 1,
            }
            copied = writer.string("MEMORY_COPY_HOST_TO_DEVICE")
            writer.insert("memory_copy", pid=1, name_id=copied, event_id=event, **row)
        elif one.kind == "mark":
            writer.call("roctxMarkA", one.start, 0, category="MARKER_CORE_API", message=one.name)
        else:
            writer.call(one.name, one.start, one.duration, category=one.kind, message=one.name)
    return writer.close(), rocpd_writer.START_NS


def _of_rocprofv3(made: list[Made]) -> tuple[list, list, list]:
    kernels = [
        rocprofv3_writer.Kernel(
            one.name, one.start, one.duration, one.place + 1, correlation=one.place + 1
        )
        for one in made
        if one.kind == "kernel"
    ]
    calls = [
        rocprofv3_writer.Call(one.name, one.start, one.duration, one.place + 1, domain=one.kind)
        for one in made
        if one.kind not in ("kernel", "copy")
    ]
    copies = [
        rocprofv3_writer.Copy("HOST_TO_DEVICE", one.start, one.duration, one.place + 1)
        for one in made
        if one.kind == "copy"
    ]
    return kernels, calls, copies


def rocprofv3_csv(folder: Path, made: list[Made]) -> tuple[Path, int]:
    kernels, calls, copies = _of_rocprofv3(made)
    tables = {
        "kernel": (rocprofv3_writer.kernel_csv, kernels),
        "memory_copy": (rocprofv3_writer.copy_csv, copies),
    }
    for part in ("HIP", "MARKER"):
        own = [call for call in calls if call.domain.startswith(part)]
        tables[f"{part.lower()}_api"] = (rocprofv3_writer.call_csv, own)
    for subject, (text, rows) in tables.items():
        if rows:
            (folder / f"1_{subject}_trace.csv").write_text(text(rows))
    return folder, rocprofv3_writer.START_NS


def rocprofv3_json(folder: Path, made: list[Made]) -> tuple[Path, int]:
    return (
        rocprofv3_writer.write_results(folder / "1_results.json", *_of_rocprofv3(made)),
        rocprofv3_writer.START_NS,
    )


def perfetto(folder: Path, made: list[Made]) -> tuple[Path, int]:
    parts = [perfetto_writer.start(), perfetto_writer.tracks()]
    for one in made:
        begin, end = BASE + one.start, BASE + one.start + one.duration
        if one.kind == "kernel":
            parts.append(perfetto_writer.kernel(begin, end, one.name, one.place + 1))
        elif one.kind == "counter":
            parts.append(perfetto_writer.counter(begin, 5.0))
        else:
            parts.append(
                perfetto_writer.slice_(begin, end, one.name, one.kind, corr_id=one.place + 1)
            )
    return perfetto_writer.write_trace(folder / "x.pftrace", *parts), BASE


def snapshot(folder: Path, made: list[Made]) -> tuple[Path, int]:
    entries = [
        snapshot_writer.entry(one.kind, one.start, 4096, 64 * one.place) | {"device_free": 1}
        for one in made
    ]
    content = snapshot_writer.small_snapshot() | {"device_traces": [entries[::2], entries[1::2]]}
    return snapshot_writer.write(folder / "x.pickle", content), 1_700_000_000_000_000_000


def compute(folder: Path, made: list[Made]) -> tuple[Path, int]:
    rows = [
        Dispatch(
            one.place + 1,
            one.name,
            one.start,
            one.duration,
            {"SQ_WAVES": 1.0 + one.place, "SQ_INSTS": 5.0},
        )
        for one in made
    ]
    return (
        write_folder(folder / "x", (long_rows if len(made) % 2 else wide_rows)(rows)),
        COMPUTE_START_NS,
    )


FORMATS: dict[str, tuple[Write, tuple[str, ...]]] = {
    "torch": (
        torch,
        (
            "kernel",
            "Kernel",
            "gpu_memcpy",
            "Memcpy",
            "gpu_memset",
            "cuda_runtime",
            "Runtime",
            "cuda_driver",
            "cpu_op",
            "Operator",
            "user_annotation",
            "gpu_user_annotation",
            "python_function",
            "overhead",
            "cuda_sync",
            "xpu_runtime",
            "collective_comm",
            "mtia_ccp_events",
            "ac2g",
            "Trace",
        ),
    ),
    "rpd": (
        rpd,
        (
            "KernelExecution",
            "Task",
            "CopyHostToDevice",
            "CopyDeviceToDevice",
            "FillBuffer",
            "Barrier",
            "MarkerPacket",
            "call",
            "UserMarker",
            "monitor",
        ),
    ),
    "rocpd": (
        rocpd,
        (
            "kernel",
            "copy",
            "HIP_RUNTIME_API_EXT",
            "HSA_CORE_API",
            "RCCL_API",
            "MARKER_CORE_RANGE_API",
            "python",
            "something new",
            "mark",
        ),
    ),
    "rocprofv3-csv": (
        rocprofv3_csv,
        ("kernel", "copy", "HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API"),
    ),
    "rocprofv3-json": (
        rocprofv3_json,
        ("kernel", "copy", "HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API"),
    ),
    "perfetto": (
        perfetto,
        ("kernel", "hip_api", "hsa_api", "marker_api", "host", "python", "rccl_api", "counter"),
    ),
    "memory snapshot": (
        snapshot,
        ("alloc", "free_requested", "free_completed", "segment_alloc", "oom", "new action"),
    ),
    "rocprof-compute": (compute, ("dispatch",)),
}
"""Format -> what writes it, and the kinds of events that are drawn."""

SAMPLES = ("monitor", "counter")
"""Kinds that are rows of `counters`."""


@st.composite
def runs(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[Made]:
    drawn = draw(
        st.lists(
            st.tuples(st.sampled_from(kinds), st.sampled_from(NAMES), st.integers(1, 4_000)),
            min_size=1,
        )
    )
    return [
        Made(*one[:2], SPACE_NS * (place + 1), one[2], place) for place, one in enumerate(drawn)
    ]


def counted(profile: Profile) -> int:
    """Events that the profile says it left out."""
    return sum(profile.meta["not_kept"].values()) + sum(profile.meta["repairs"].values())


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_event_is_in_a_table_or_counted(
    name: str, data: st.DataObject, tmp_path_factory
) -> None:
    write, kinds = FORMATS[name]
    made = data.draw(runs(kinds))
    folder = tmp_path_factory.getbasetemp() / "nothing lost"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path, base = write(folder, made)
    scale = 1000 if write is snapshot else 1
    profile = tidyprof.read(path)
    events = Counter(profile.events["start_ns"].tolist())
    samples = Counter(profile.counters["time_ns"].tolist())
    missing = [
        one
        for one in made
        if not (samples if one.kind in SAMPLES else events)[base + scale * one.start]
    ]
    assert len(missing) <= counted(profile), missing
    lasting = profile.events[profile.events["duration_ns"] > 0]
    found = dict(zip(lasting["start_ns"].tolist(), lasting["duration_ns"].tolist(), strict=True))
    wrong = [one for one in made if found.get(base + one.start, one.duration) != one.duration]
    assert not wrong
    if write is rocpd:
        counters = sum(one.kind == "kernel" and one.place % 3 == 0 for one in made)
        assert len(profile.counters) == counters
    if write is compute:
        assert len(profile.counters) == 2 * len(made)
    assert not pd.isna(profile.events["name"]).any()
