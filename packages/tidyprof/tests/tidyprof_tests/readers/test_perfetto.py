"""The Perfetto reader against recordings with known figures, and against written traces."""

from __future__ import annotations

from pathlib import Path

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
    COPIES,
    call,
    counter,
    event,
    kernel,
    sample,
    slice_,
    small_trace,
    start,
    tracks,
)

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


def span(events: pd.DataFrame) -> int:
    return int((events["start_ns"] + events["duration_ns"]).max() - events["start_ns"].min())


def busy_fraction(profile: Profile) -> float:
    """Share of the kernels' span in which one ran."""
    events = of(profile, "kernel_dispatch")
    table = busy(Profile(events, profile.counters, dict(profile.meta)))
    return round(table["busy_ns"].iloc[0] / table["span_ns"].iloc[0], 6)


def count_of_tracks(profile: Profile) -> int:
    """Tracks with events, tracks of counters, and that of the process."""
    return (
        profile.events["track"].nunique()
        + profile.counters["name"].nunique()
        + len(profile.meta["processes"])
    )


FIGURES = {
    "trace_packets": lambda profile: profile.meta["packets"],
    "track_descriptors": count_of_tracks,
    "slice_begin_events": lambda profile: len(profile.events),
    "slice_end_events": lambda profile: len(profile.events),
    "counter_events": lambda profile: (
        len(profile.counters) + profile.meta["repairs"]["dropped events with an impossible time"]
    ),
    "slices_by_category": lambda profile: profile.meta["events_by_category"],
    "kernel_total_ns": lambda profile: int(of(profile, "kernel_dispatch")["duration_ns"].sum()),
    "kernels_by_name": lambda profile: by_name(of(profile, "kernel_dispatch")),
    "kernel_span_ns": lambda profile: span(of(profile, "kernel_dispatch")),
    "kernel_busy_fraction": busy_fraction,
    "memory_copies": lambda profile: copies(of(profile, "memory_copy")),
    "hip_api_calls": lambda profile: len(of(profile, "hip_api")),
    "most_called_hip_api": lambda profile: (
        of(profile, "hip_api")["name"].value_counts().head(1).to_dict()
    ),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_of_the_manifest(lumi, truth, figure):
    assert FIGURES[figure](lumi) == truth[figure]


def test_every_figure_of_the_manifest_has_a_test(truth):
    assert set(FIGURES) == set(truth)


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
    assert lumi.meta["device_events_without_launch"] == 0
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
    assert "136 of 282 call-stack samples have 62 frames" in sampled.meta["warnings"][1]
    assert set(frames["thread"]) == {18731}
    assert stacks["start_ns"].first().is_monotonic_increasing


def test_depth_and_parent_of_samples_form_stacks(sampled):
    frames = sampled.events[sampled.events["kind"] == "sample"]
    outermost = frames["depth"] == 0
    assert (frames["parent"].isna() == outermost).all()
    parents = frames.loc[frames.loc[~outermost, "parent"].astype("int64")]
    inner = frames[~outermost]
    assert (parents["depth"].to_numpy() == inner["depth"].to_numpy() - 1).all()
    assert (parents["sample"].to_numpy() == inner["sample"].to_numpy()).all()
    assert (parents["start_ns"].to_numpy() == inner["start_ns"].to_numpy()).all()
    assert frames.groupby("sample")["depth"].max().eq(frames.groupby("sample").size() - 1).all()


# Written traces: slices


def read(tmp_path: Path, *parts: bytes, **options: object) -> Profile:
    return read_perfetto(w.write_trace(tmp_path / "trace.pftrace", *parts), **options)


def times(profile: Profile) -> dict[str, tuple[int, int]]:
    """Name -> start and end after BASE."""
    events = profile.events
    ends = events["start_ns"] + events["duration_ns"]
    return dict(
        zip(events["name"], zip(events["start_ns"] - BASE, ends - BASE, strict=True), strict=True)
    )


def test_the_small_trace(tmp_path):
    profile = read(tmp_path, small_trace())
    events = profile.events.set_index("name")
    assert times(profile)["second(float*) [clone .kd]"] == (3_400, 4_400)
    assert events["kind"].to_dict() == {
        "step": "annotation",
        "hipMemcpy": "runtime",
        "first(float*) [clone .kd]": "kernel",
        "second(float*) [clone .kd]": "kernel",
        "MEMORY_COPY_HOST_TO_DEVICE": "copy",
    } | {"hipLaunchKernel": "runtime"}
    first = events.loc["first(float*) [clone .kd]"]
    assert (first["grid"], first["block"], first["launch_ns"]) == ("[1024]", "[256]", BASE + 1_000)
    assert first["short_name"] == "first"
    assert events.loc["MEMORY_COPY_HOST_TO_DEVICE", "bytes"] == 4096
    assert set(profile.device_events["process"]) == {100}
    assert events.loc["step", "thread"] == 101
    assert profile.events["start_ns"].is_monotonic_increasing


def test_overlapping_kernels_of_one_queue_stay_apart(tmp_path):
    """In order of time the end of `a` would close `b`."""
    profile = read(
        tmp_path,
        start(),
        tracks(),
        kernel(BASE, BASE + 10, "a", 1),
        kernel(BASE + 5, BASE + 20, "b", 2),
    )
    assert times(profile) == {"a": (0, 10), "b": (5, 20)}
    assert not {"depth", "parent"} & set(profile.events.columns)


def test_live_ranges_nest(tmp_path):
    parts = [
        event(w.BEGIN, BASE, name="outer", category="user"),
        event(w.BEGIN, BASE + 10, name="inner", category="user"),
        event(w.INSTANT, BASE + 15, name="mark", category="user"),
        event(w.END, BASE + 20),
        event(w.BEGIN, BASE + 20, name="next", category="user"),
        event(w.END, BASE + 30),
        event(w.END, BASE + 40),
    ]
    profile = read(tmp_path, start(), tracks(), *parts)
    assert times(profile) == {
        "outer": (0, 40),
        "inner": (10, 20),
        "mark": (15, 15),
        "next": (20, 30),
    }
    events = profile.events.set_index("name")
    assert events["depth"].to_dict() == {"outer": 0, "inner": 1, "mark": 2, "next": 1}
    labels = profile.events["name"]
    assert [labels[row] for row in events["parent"].dropna()] == ["outer", "inner", "outer"]


def test_packets_out_of_order_of_time(tmp_path):
    """Records that are written when they end: the enclosing call comes after the enclosed one."""
    profile = read(
        tmp_path,
        start(),
        tracks(),
        call(BASE + 10, BASE + 20, "in", 2),
        call(BASE, BASE + 30, "out", 1),
    )
    assert profile.events["name"].tolist() == ["out", "in"]
    assert profile.events["depth"].tolist() == [0, 1]
    assert profile.events["parent"].tolist() == [pd.NA, 0]


def test_an_end_before_its_begin_is_its_own_and_no_other_slices(tmp_path):
    """Else the outer slice would end early and the inner one late, both with times that look
    right.
    """
    whole = [slice_(BASE + 100 + i, BASE + 101 + i, "whole") for i in range(100)]
    parts = [
        event(w.BEGIN, BASE, name="outer", category="user"),
        event(w.BEGIN, BASE + 10, name="inner", category="user"),
        event(w.END, BASE + 5),
        event(w.END, BASE + 20),
    ]
    profile = read(tmp_path, start(), tracks(), *whole, *parts)
    assert times(profile)["outer"] == (0, 20)
    assert set(profile.events["name"]) == {"whole", "outer"}
    assert profile.meta["repairs"] == {"dropped events with negative duration": 1}


def test_slices_cut_off_at_the_edges_are_dropped_and_counted(tmp_path):
    parts = [
        event(w.END, BASE),
        slice_(BASE, BASE + 10, "whole"),
        event(w.BEGIN, BASE + 20, name="open", category="user"),
    ]
    profile = read(tmp_path, start(), tracks(), *parts)
    assert times(profile) == {"whole": (0, 10)}
    assert profile.meta["repairs"] == {
        "dropped events whose begin is missing": 1,
        "dropped events unfinished when the trace ended": 1,
    }


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


# Written traces: names, state, clocks


def test_interned_names_belong_to_their_sequence(tmp_path):
    def names(text: str) -> bytes:
        return w.block(
            12,
            w.interned(
                event_names={1: text},
                event_categories={1: "hip_api"},
                annotation_names={1: "corr_id"},
            ),
        )

    parts = [start(2, names("two")), start(3, names("three")), tracks()]
    parts += [
        slice_(BASE, BASE + 1, 1, 1, sequence=2),
        slice_(BASE + 2, BASE + 3, 1, 1, sequence=3),
    ]
    events = read(tmp_path, *parts).events
    assert events["name"].tolist() == ["two", "three"]
    assert set(events["kind"]) == {"runtime"}


def test_numbered_annotation_names(tmp_path):
    names = w.block(12, w.interned(annotation_names={1: "corr_id", 200: "tid", 3: "other"}))
    arguments = b"".join(
        w.block(4, w.annotation(key, value)) for key, value in ((3, 9), (1, 77), (200, 5))
    )
    body = w.block(
        11,
        w.number(9, w.BEGIN)
        + w.number(11, w.THREAD)
        + w.block(23, "c")
        + w.block(22, "hip_api")
        + arguments,
    )
    parts = [start(2, names), tracks(), w.packet(w.time_of(BASE), body), event(w.END, BASE + 1)]
    events = read(tmp_path, *parts).events
    assert events[["correlation_id", "thread"]].to_numpy().tolist() == [[77, 5]]


def test_annotations_with_the_value_before_the_name(tmp_path):
    arguments = w.block(4, w.annotation("corr_id", 42, number_first=True))
    body = w.block(11, w.number(9, w.BEGIN) + w.block(23, "c") + w.block(22, "hip_api") + arguments)
    parts = [start(), tracks(), w.packet(w.time_of(BASE), body), event(w.END, BASE + 1)]
    assert read(tmp_path, *parts).events["correlation_id"].tolist() == [42]


def test_a_cleared_state_forgets_names(tmp_path):
    first = w.block(12, w.interned(event_names={1: "before"}, annotation_names={1: "corr_id"}))
    second = w.block(12, w.interned(event_names={1: "after"}, annotation_names={1: "tid"}))

    def numbered(time: int) -> bytes:
        arguments = w.block(4, w.annotation(1, 7))
        body = w.block(
            11, w.number(9, w.BEGIN) + w.number(10, 1) + w.block(22, "hip_api") + arguments
        )
        return w.packet(w.time_of(time), body) + event(w.END, time + 1)

    parts = [
        start(2, first),
        tracks(),
        numbered(BASE),
        start(2, second, dropped=0),
        numbered(BASE + 5),
    ]
    events = read(tmp_path, *parts).events
    assert events["name"].tolist() == ["before", "after"]
    assert events["correlation_id"].tolist() == [7, pd.NA]
    assert events["thread"].tolist() == [101, 7]


def test_default_track_and_clock(tmp_path):
    parts = [start(clock=6, default_track=w.QUEUE), tracks()]
    parts += [
        event(w.BEGIN, BASE, name="k", category="kernel_dispatch", track=None),
        event(w.END, BASE + 9, track=None),
    ]
    events = read(tmp_path, *parts).events
    assert events["device"].tolist() == [4]
    assert events["duration_ns"].tolist() == [9]


def test_times_of_an_incremental_clock(tmp_path):
    snapshot = w.clock_snapshot((6, BASE), (64, BASE, True, 1000), sequence=2)
    parts = [start(clock=64), snapshot, tracks()]
    parts += [
        event(w.BEGIN, 5, name="a", category="user"),
        event(w.END, 7),
        slice_(BASE + 1, BASE + 2, "b", clock=6),
    ]
    assert times(read(tmp_path, *parts)) == {"a": (5_000, 12_000), "b": (1, 2)}


def test_an_incremental_clock_goes_on_with_every_packet(tmp_path):
    """The SDK writes a descriptor's time as a difference too."""
    snapshot = w.clock_snapshot((6, BASE), (64, BASE, True, 1), sequence=2)
    late = w.packet(w.time_of(100), w.block(60, w.number(1, 30) + w.block(2, "late")))
    parts = [event(w.BEGIN, 5, name="a", category="user"), late, event(w.END, 7)]
    assert times(read(tmp_path, start(clock=64), snapshot, tracks(), *parts)) == {"a": (5, 112)}


def test_times_of_another_clock_follow_the_snapshot_before_them(tmp_path):
    monotonic = 3
    parts = [
        w.clock_snapshot((6, BASE), (monotonic, 1_000)),
        w.clock_snapshot((6, BASE + 10_050), (monotonic, 11_000)),
        start(),
        tracks(),
        slice_(1_500, 1_600, "before", clock=monotonic),
        slice_(11_500, 11_600, "after", clock=monotonic),
    ]
    assert times(read(tmp_path, *parts)) == {"before": (500, 600), "after": (10_550, 10_650)}


def test_the_clock_that_the_trace_names(tmp_path):
    parts = [w.clock_snapshot((6, BASE), (1, BASE + 10**18), primary=1), start(clock=0), tracks()]
    profile = read(tmp_path, *parts, slice_(BASE + 10**18, BASE + 10**18 + 5, "a", clock=0))
    assert profile.meta["clock"] == "REALTIME"
    assert profile.meta["realtime_offset_ns"] == 0
    assert profile.events["start_ns"].tolist() == [BASE + 10**18]


def test_descriptors_may_come_late_and_in_parts(tmp_path):
    parts = [
        start(),
        kernel(BASE, BASE + 9, "k", 1),
        w.track(w.QUEUE, parent=w.PROCESS),
        tracks(),
        w.track(w.QUEUE),
    ]
    events = read(tmp_path, *parts).events
    assert events[["process", "device", "queue"]].to_numpy().tolist() == [[100, 4, 0]]


# Written traces: devices of each version of the tools


@pytest.mark.parametrize(
    ("track_name", "arguments", "expected"),
    [
        ("COMPUTE AGENT [4] QUEUE [2] (GPU)", {"agent": 4, "queue": 9}, (4, 2, 2, "agent")),
        (
            "COMPUTE Agent [4] QUEUE [2] GPU",
            {"agent": "Agent-4", "stream_ID": 3},
            (4, 3, 2, "agent"),
        ),
        ("COMPUTE GPU [1] QUEUE [0] GPU", {"agent": "GPU-1"}, (1, 0, 0, "index")),
        ('STREAM [" 5 "] ', {"agent": "GPU-0", "queue": 6, "stream_ID": 5}, (0, 5, 6, "index")),
        ("STREAM [5] ", {}, (pd.NA, 5, pd.NA, None)),
        ("GPU Kernel Dispatch [2] Queue 7", {"queue": 7, "stream_id": 1}, (2, 1, 7, "index")),
        ("HIP Activity Device 3, Queue 1", {}, (3, 1, 1, "index")),
        ("a name of something else", {}, (pd.NA, pd.NA, pd.NA, None)),
        ("COMPUTE AGENT [99999999999] QUEUE [0] (GPU)", {}, (pd.NA, pd.NA, pd.NA, None)),
    ],
)
def test_devices_queues_and_streams(tmp_path, track_name, arguments, expected):
    arguments = {"track": w.QUEUE} | arguments
    parts = [
        start(),
        tracks(track_name),
        slice_(BASE, BASE + 9, "k", "kernel_dispatch", **arguments),
    ]
    profile = read(tmp_path, *parts)
    row = profile.events.iloc[0]
    found = (row["device"], row["stream"], row["queue"], profile.meta.get("device_numbering"))
    assert all(a is b or a == b for a, b in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(
    ("name", "source", "destination", "expected"),
    [
        ("MEMORY_COPY_HOST_TO_DEVICE", 0, 4, 4),
        ("MEMORY_COPY_DEVICE_TO_HOST", 4, 0, 4),
        ("MEMORY_COPY_DEVICE_TO_DEVICE", 4, 5, 5),
        ("MEMORY_COPY_HOST_TO_HOST", 0, 1, pd.NA),
        ("MEMORY_COPY_HOST_TO_DEVICE", "CPU-0", "GPU-1", 1),
        ("MEMORY_COPY_DEVICE_TO_HOST", "Agent-4", "Agent-0", 4),
    ],
)
def test_a_copy_is_the_gpus(tmp_path, name, source, destination, expected):
    arguments = {"track": COPIES, "src_agent": source, "dst_agent": destination}
    events = read(
        tmp_path, start(), tracks(), slice_(BASE, BASE + 1, name, "memory_copy", **arguments)
    ).events
    assert events["device"].iloc[0] is expected or events["device"].iloc[0] == expected
    assert events["kind"].tolist() == ["copy"]


@pytest.mark.parametrize(
    ("gpus", "agents", "expected", "joined"),
    [((0,), (4,), [0, 0], {4: 0}), ((0, 1), (4, 5), [0, 1, pd.NA, pd.NA], None)],
)
def test_rocprof_sys_counts_agents_for_copies_and_gpus_for_kernels(
    tmp_path, gpus, agents, expected, joined
):
    parts = [start(), tracks()]
    for place, gpu in enumerate(gpus):
        parts.append(
            w.track(40 + gpu, name=f"GPU Kernel Dispatch [{gpu}] Queue 1", parent=w.PROCESS)
        )
        parts.append(
            slice_(
                BASE + place,
                BASE + place + 1,
                "k",
                "rocm_kernel_dispatch",
                track=40 + gpu,
                kernel_id=1,
            )
        )
    for place, agent in enumerate(agents):
        arguments = {"track": 50, "src_agent": 0, "dst_agent": agent}
        parts.append(
            slice_(
                BASE + 9 + place,
                BASE + 20,
                "MEMORY_COPY_HOST_TO_DEVICE",
                "rocm_memory_copy",
                **arguments,
            )
        )
    profile = read(tmp_path, *parts)
    assert profile.events["device"].tolist() == expected
    assert profile.meta.get("agent_taken_as_device") == joined
    assert profile.meta["tool"] == "rocprof-sys"


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("kernel_dispatch", "__amd_rocclr_fillBufferAligned.kd", "fill"),
        ("kernel_dispatch", "__amd_rocclr_copyBuffer.kd", "copy"),
        ("kernel_dispatch", "ncclDevKernel_Generic(ncclDevKernelArgs*)", "collective"),
        ("kernel_dispatch", "CopyHostToDevice(float*)", "kernel"),
        ("device_hip", "CopyHostToDevice", "copy"),
        ("hsa_api", "hsa_signal_create", "runtime"),
        ("rccl_api", "ncclAllReduce", "runtime"),
        ("marker_api", "ProfilerStep#3", "annotation"),
        ("python", "train.py", "annotation"),
        ("overflow_sampling", "main", "sample"),
        ("a category of another program", "x", "annotation"),
    ],
)
def test_kinds(tmp_path, category, name, kind):
    assert read(tmp_path, start(), tracks(), slice_(BASE, BASE + 1, name, category)).events[
        "kind"
    ].tolist() == [kind]


def test_the_first_known_category_of_several_counts(tmp_path):
    names = w.block(12, w.interned(event_categories={1: "mine", 2: "hip_api"}))
    body = w.block(11, w.number(9, w.BEGIN) + w.number(3, 1) + w.number(3, 2) + w.block(23, "c"))
    events = read(
        tmp_path, start(2, names), tracks(), w.packet(w.time_of(BASE), body), event(w.END, BASE + 1)
    ).events
    assert events["source_category"].tolist() == ["mine,hip_api"]
    assert events["kind"].tolist() == ["runtime"]


# Written traces: counters, samples, annotations


def test_counters_have_the_units_that_the_file_states(tmp_path):
    parts = [start(), tracks()]
    for lane, (name, described) in enumerate(
        [
            ("GPU [1] Power (S)", w.unit("W")),
            ("GPU Temperature [2] (S)", w.unit("deg C")),
            ("COPY BYTES to AGENT [3] (GPU)", w.unit(builtin=3, multiplier=1024)),
            ("COPY BYTES to AGENT [0] (CPU)", w.unit(builtin=3)),
            ("growing", w.unit(builtin=2, incremental=True)),
            ("bare", w.unit()),
        ],
        70,
    ):
        parts += [w.track(lane, described, name=name, parent=w.PROCESS)]
        parts += [counter(BASE + 2, 3, lane), counter(BASE + 1, 2.5, lane)]
    counters = read(tmp_path, *parts).counters
    values = counters[counters["time_ns"] == BASE + 2].set_index("name")
    assert values["value"].to_dict() == {
        "GPU [1] Power (S)": 3,
        "GPU Temperature [2] (S)": 3,
        "COPY BYTES to AGENT [3] (GPU)": 3072,
        "COPY BYTES to AGENT [0] (CPU)": 3,
        "growing": 5.5,
        "bare": 3,
    }
    units = {name: unit for name, unit in values["unit"].items() if not pd.isna(unit)}
    assert set(units.values()) == {"W", "deg C", "bytes", "count"}
    assert values["device"].to_dict()["GPU [1] Power (S)"] == 1
    assert values["device"].to_dict()["GPU Temperature [2] (S)"] == 2
    assert values["device"].isna()["COPY BYTES to AGENT [0] (CPU)"]
    assert set(counters["process"]) == {100}


def test_only_zeros_that_close_all_counters_are_left_out(tmp_path):
    second = w.track(71, w.unit("sec"), name="CPU User Time (S)", parent=w.PROCESS)
    values = [counter(BASE, 5.0), counter(BASE, 1.0, 71), counter(BASE + 9, 0.0)]
    both = read(tmp_path, start(), tracks(), second, *values, counter(BASE + 9, 0.0, 71))
    assert both.counters["value"].tolist() == [5, 1]
    assert both.meta["not_kept"] == {"zeros that close counters": 2}
    one = read(tmp_path, start(), tracks(), second, *values, counter(BASE + 9, 2.0, 71))
    assert one.counters["value"].tolist() == [5, 1, 0, 2]


def test_events_of_an_unknown_type_are_reported(tmp_path):
    profile = read(
        tmp_path, w.small_trace(), w.packet(w.time_of(BASE), w.block(11, w.number(9, 7)))
    )
    assert sum(profile.meta["not_kept"].values()) == 1
    assert any("1 events are left out" in warning for warning in profile.meta["warnings"])


def test_samples_in_slices(tmp_path):
    parts = [start(), tracks(), w.track(80, name="Thread 0 (S) 555", parent=w.PROCESS)]
    parts += [
        event(w.BEGIN, BASE, name="samples [rocprof-sys]", category="timer_sampling", track=80)
    ]
    parts += [
        sample(BASE, BASE + 10, ["main", "f", "f"], 80),
        sample(BASE + 10, BASE + 30, ["main", "g"], 80),
    ]
    parts += [event(w.END, BASE + 30, track=80)]
    profile = read(tmp_path, *parts)
    frames = profile.events[profile.events["kind"] == "sample"]
    assert frames["sample"].tolist() == [0, 0, 0, 1, 1]
    assert frames["depth"].tolist() == [0, 1, 2, 0, 1]
    assert frames["parent"].tolist() == [pd.NA, *frames.index[:2], pd.NA, frames.index[3]]
    assert set(frames["thread"]) == {555}
    assert profile.meta["tool"] == "rocprof-sys"


# Written traces: losses, doubts, folders


def test_packets_after_a_gap_are_lost_until_the_state_is_cleared(tmp_path):
    gap = w.packet(w.number(42, 1))
    parts = [slice_(BASE + i, BASE + i + 1, "a") for i in range(300)]
    parts += [
        gap,
        slice_(BASE + 400, BASE + 401, "lost"),
        start(dropped=0),
        slice_(BASE + 500, BASE + 501, "found"),
    ]
    profile = read(tmp_path, start(), tracks(), *parts)
    assert set(profile.events["name"]) == {"a", "found"}
    assert profile.meta["data_loss"] == {"packets missing in a sequence": 1}
    assert list(profile.meta["repairs"].values()) == [1]


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
