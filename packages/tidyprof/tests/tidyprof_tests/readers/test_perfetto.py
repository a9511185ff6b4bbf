"""The Perfetto reader against recordings with known figures, and against written traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidyprof import Profile
from tidyprof.analyses import busy
from tidyprof.readers.perfetto.reader import read_perfetto
from tidyprof_tests import perfetto_writer as w
from tidyprof_tests.perfetto_writer import (
    BASE,
    counter,
    sample,
    slice_,
    start,
    tracks,
)
from tidyprof_tests.readers.written import cases, check, made

LUMI = "rocprofv3-lumi-taylor"
SAMPLED = "rocprof-sys-cpu/rocprofsys-python-output/perfetto-trace-18731.proto"


@pytest.fixture(scope="session")
def truth(manifest: dict[str, dict]) -> dict:
    return manifest[LUMI]["truth"]["results.pftrace"]


@pytest.fixture(scope="session")
def lumi(recordings: Path) -> Profile:
    return read_perfetto(recordings / LUMI / "results.pftrace")


@pytest.fixture(scope="session")
def sampled(recordings: Path) -> Profile:
    return read_perfetto(recordings / SAMPLED)


def of(profile: Profile, *categories: str) -> pd.DataFrame:
    return profile.events[profile.events["source_category"].isin(categories)]


def by_name(events: pd.DataFrame) -> dict:
    totals = events.groupby("name", observed=True)["duration_ns"].agg(["count", "sum"])
    return {
        name: {"calls": int(row["count"]), "total_ns": int(row["sum"])}
        for name, row in totals.iterrows()
    }


def copies(events: pd.DataFrame) -> dict:
    groups = events.groupby("name", observed=True)
    return {
        name: {
            "count": len(rows),
            "bytes": int(rows["bytes"].sum()),
            "total_ns": int(rows["duration_ns"].sum()),
        }
        for name, rows in groups
    }


def test_the_figures_of_a_recording(lumi, truth):
    kernels, calls = of(lumi, "kernel_dispatch"), of(lumi, "hip_api")
    ends = kernels["start_ns"] + kernels["duration_ns"]
    table = busy(Profile(kernels, lumi.counters, dict(lumi.meta)))
    dropped = lumi.meta["repairs"]["dropped events with an impossible time"]
    found = {
        "slice_begin_events": len(lumi.events),
        "counter_events": len(lumi.counters) + dropped,
        "slices_by_category": lumi.meta["events_by_category"],
        "kernels_by_name": by_name(kernels),
        "kernel_span_ns": ends.max() - kernels["start_ns"].min(),
        "kernel_busy_fraction": round(table["busy_ns"].iloc[0] / table["span_ns"].iloc[0], 6),
        "memory_copies": copies(of(lumi, "memory_copy")),
        "most_called_hip_api": calls["name"].value_counts().head(1).to_dict(),
    }
    assert found == {key: truth[key] for key in found}


def test_kinds_devices_and_launches_of_the_recording(lumi):
    events = lumi.events
    assert events["kind"].value_counts()[["kernel", "fill", "copy", "runtime"]].tolist() == [
        61,
        3,
        12,
        791,
    ]
    device = lumi.device_events
    assert set(device["device"]) == {4}
    assert device["launch_ns"].notna().all()
    assert (device["launch_ns"] <= device["start_ns"]).all()
    assert device["thread"].isna().all()
    assert set(device["launch_thread"]) == {78784}
    calls = events.set_index("start_ns")["name"]
    assert set(calls[of(lumi, "memory_copy")["launch_ns"]]) == {"hipMemcpy"}
    assert device["launch_ns"].notna().all()
    assert lumi.meta["device_numbering"] == "agent"


def test_counters_are_in_bytes_and_their_impossible_times_are_dropped(lumi):
    assert set(lumi.counters["unit"]) == {"bytes"}
    of_gpu = lumi.counters[lumi.counters["device"] == 4]
    # rocprofv3 writes whole KiB: the three copies to the GPU have 134219856, 134217728 and
    # 131562416 bytes.
    assert sorted(set(of_gpu["value"])) == [0, 128478 * 1024, 131072 * 1024, 131074 * 1024]
    assert lumi.counters["time_ns"].is_monotonic_increasing
    assert lumi.meta["repairs"] == {"dropped events with an impossible time": 2}


def test_samples_of_the_recording(sampled):
    frames = sampled.events[sampled.events["kind"] == "sample"]
    stacks = frames.groupby("sample")
    assert len(frames) == 12393
    assert stacks.ngroups == 282
    # The known traits: the signal's trampoline is innermost, and 136 stacks were cut at the limit.
    assert set(stacks["name"].last()) == {"__sigaction"}
    assert (stacks.size() == 62).sum() == 136
    assert set(frames["thread"]) == {18731}
    assert stacks["start_ns"].first().is_monotonic_increasing


# Written traces


def slices(first: int, last: int) -> bytes:
    """Many short slices, next to which a few damaged ones are allowed."""
    return b"".join(slice_(BASE + i, BASE + i + 1, "a") for i in range(first, last))


def counter_track(uuid: int, track_name: str, **unit: Any) -> bytes:
    """A counter with two samples, of which the later one is written first."""
    described = w.track(uuid, w.unit(**unit), name=track_name, parent=w.PROCESS)
    return described + counter(BASE + 2, 3, uuid) + counter(BASE + 1, 2.5, uuid)


def clock_snapshot(*clocks: list[Any], **options: int) -> bytes:
    return w.clock_snapshot(
        *((clock, BASE + time, *rest) for clock, time, *rest in clocks), **options
    )


OWN = {
    "slices": slices,
    "counter_track": counter_track,
    "clock_snapshot": clock_snapshot,
    "names": lambda sequence, **kinds: start(sequence, w.block(12, w.interned(**kinds))),
    "gap": lambda: w.packet(w.number(42, 1)),
}


def after_base(
    function: Callable[..., bytes], times: int, skipped: int = 0
) -> Callable[..., bytes]:
    """The function whose arguments after the skipped ones are this many times after BASE."""

    def called(*given: Any, **options: Any) -> bytes:
        moved = [BASE + time for time in given[skipped : skipped + times]]
        return function(*given[:skipped], *moved, *given[skipped + times :], **options)

    return called


FUNCTIONS = OWN | {"start": start, "tracks": tracks, "track": w.track}
FUNCTIONS |= {"event": after_base(w.event, 1, 1), "counter": after_base(counter, 1)}
FUNCTIONS |= {one.__name__: after_base(one, 2) for one in (slice_, w.kernel, w.call, sample)}
CASES = cases("perfetto")


@pytest.mark.parametrize("name", CASES)
def test_a_written_trace(name, tmp_path):
    packets = CASES[name]["packets"]
    if packets[0][0] not in ("start", "names", "clock_snapshot"):
        packets = [["start"], ["tracks"], *packets]
    parts = [made(FUNCTIONS, *one) for one in packets]
    profile = read_perfetto(w.write_trace(tmp_path / "trace.pftrace", *parts))
    check(profile, CASES[name], BASE)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 3), st.booleans()),
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)
def test_every_written_slice_is_read_exactly(tmp_path_factory, records, order):
    """Slices of four tracks and two sequences, in any order of writing, with overlaps."""
    path = tmp_path_factory.getbasetemp() / "slices.pftrace"
    parts, expected = [], []
    for number, (begin, length, lane, second) in enumerate(records):
        options = {"track": w.QUEUE + lane, "sequence": 3 if second else 2}
        parts.append(slice_(BASE + begin, BASE + begin + length, f"s{number}", "user", **options))
        expected.append((f"s{number}", BASE + begin, length))
    order.shuffle(parts)
    w.write_trace(path, start(2), start(3), tracks(), slice_(BASE, BASE + 1, "first"), *parts)
    events = read_perfetto(path).events
    found = list(zip(events["name"], events["start_ns"], events["duration_ns"], strict=True))
    assert sorted(found) == sorted([*expected, ("first", BASE, 1)])
    assert [begin for _, begin, _ in found] == sorted(begin for _, begin, _ in found)


def test_samples_and_parents_go_on_from_file_to_file(tmp_path):
    for number in (0, 1):
        parts = [
            start(),
            tracks(pid=100 + number),
            sample(BASE + number, BASE + 10, ["main", f"f{number}"]),
        ]
        w.write_trace(tmp_path / f"{number}.pftrace", *parts)
    events = read_perfetto(tmp_path).events
    assert events["sample"].tolist() == [0, 0, 1, 1]
    assert [events["name"][row] for row in events["parent"].dropna()] == ["main", "main"]
    assert events["parent"].dropna().tolist() == [0, 2]
