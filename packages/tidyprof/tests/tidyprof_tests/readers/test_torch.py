"""The torch.profiler reader against real recordings with known figures, and against written
traces.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof import Profile, read_torch_trace
from tidyprof.readers.torch.events import _TODAY
from tidyprof.tables.launches import launching_calls
from tidyprof_tests.chrome_writer import (
    BASE_NS,
    TraceEvent,
    call,
    kernel,
    operator,
    small_step,
    write_trace,
)
from tidyprof_tests.readers.written import cases, check, made

TRACES = {
    "torch-mi300x-resnet-ddp-rank0": "resnet_act_checkpoint.json.gz",
    "torch-mi300x-compile-triton": "trace.json.gz",
    "torch-mi300x-vllm-decode-hipgraph": "graph_execution.json.gz",
    "torch-mi210-gpu-only": "gpu_only_trace.json.gz",
    "torch-mi250-minitoy": "mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "torch-mi350x-rocprofiler-sdk": (
        "smci350-zts-gtu-c6-25_200691.1758927066581847260.pt.trace.json"
    ),
    "torch-nvidia-a100-alexnet": "benchmark_result_2869224_1695835535_trace.json.gz",
    "torch-nvidia-hta-2of128-ranks/0": "sampled_rank-0.json.gz",
    "torch-nvidia-hta-2of128-ranks/1": "sampled_rank-1.json.gz",
}
FUSED = ("merged_all_events", "merged_nccl_only")
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(scope="session")
def profile_of(recordings: Path):
    cache: dict[str, Profile] = {}

    def read(name: str) -> Profile:
        if name not in cache:
            cache[name] = read_torch_trace(recordings / name.partition("/")[0] / TRACES[name])
        return cache[name]

    return read


# Figures of a profile in the manifest's terms, computed from the tables alone.


def total_us(events: pd.DataFrame) -> float:
    return int(events["duration_ns"].sum()) / 1000


def busy_ns(events: pd.DataFrame) -> int:
    """Length of the union of intervals, the plain way."""
    total, last = 0, 0
    for start, duration in sorted(zip(events["start_ns"], events["duration_ns"], strict=True)):
        total += max(0, start + duration - max(start, last))
        last = max(last, start + duration)
    return total


def span_ns(events: pd.DataFrame) -> int:
    return int((events["start_ns"] + events["duration_ns"]).max() - events["start_ns"].min())


def of(profile: Profile, *categories: str) -> pd.DataFrame:
    return profile.events[profile.events["source_category"].isin(categories)]


def by_collective(events: pd.DataFrame) -> dict[str, int]:
    names = events["collective"] if "collective" in events else [None] * len(events)
    return dict(Counter("(no Collective name arg)" if pd.isna(name) else name for name in names))


def steps_us(events: pd.DataFrame) -> list[float]:
    steps = events[(events["kind"] == "annotation") & events["device"].isna()]
    steps = steps[steps["name"].astype(str).str.startswith("ProfilerStep#")]
    return [duration / 1000 for duration in steps["duration_ns"]]


def figures(profile: Profile) -> dict[str, object]:
    kernels, device = of(profile, "kernel"), profile.device_events
    collective = profile.events[profile.events["kind"] == "collective"]
    # The manifest's figures were computed with doubles, which for times since 1970 (files without a
    # base time) are 256 ns apart.
    if "base_time_ns" not in profile.meta:
        device = device.assign(start_ns=device["start_ns"].astype(float).astype("int64"))
    return {
        "events_total": profile.meta["events_total"],
        "events_by_cat": profile.meta["events_by_category"],
        "kernel_events": len(kernels),
        "kernel_total_us": total_us(kernels),
        "distinct_kernel_names": kernels["name"].nunique(),
        "memcpy_total_us": total_us(of(profile, "gpu_memcpy")),
        "memset_total_us": total_us(of(profile, "gpu_memset")),
        "gpu_busy_us": busy_ns(device) / 1000,
        "gpu_span_us": span_ns(device) / 1000,
        "gpu_streams": len(device[["device", "stream"]].drop_duplicates()),
        "collective_kernels": {
            "events": len(collective),
            "total_us": total_us(collective),
            "by_name": by_collective(collective),
        },
        "runtime_calls": len(of(profile, "cuda_runtime")),
        "gpu_events_without_launch_record": int(device["launch_ns"].isna().sum()),
    }


@pytest.mark.parametrize("name", TRACES)
def test_the_figures_of_a_recording(name, manifest, profile_of):
    profile = profile_of(name)
    entry = manifest[name.partition("/")[0]]
    truth = entry["truth"].get(TRACES[name], entry["truth"])
    known = {key: value for key, value in figures(profile).items() if key in truth}
    assert known == {key: truth[key] for key in known}
    assert steps_us(profile.events) == [step["dur_us"] for step in truth.get("profiler_steps", [])]
    assert profile.meta.get("rank") == truth.get("distributed_info", {}).get("rank")
    assert (profile.meta["repairs"], profile.meta["warnings"]) == ({}, [])
    meta = profile.meta
    if " back end" in (entry["tool_version"] or ""):
        assert f"{meta['tool_version']} back end" == entry["tool_version"]
        assert f"HIP {meta['hip_runtime_version']} (ROCm {meta['rocm']})" == entry["rocm"]
    else:
        assert not {"tool_version", "rocm"} & set(meta)
    names = {device["name"] for device in meta.get("device_properties", [])} - {""}
    assert meta.get("gpu") == (names.pop() if names else None)


@pytest.mark.parametrize(
    ("name", "back_end", "numbering", "device"),
    [
        ("torch-mi300x-resnet-ddp-rank0", "rocm-roctracer", "agent", 2),
        ("torch-mi210-gpu-only", "rocm-roctracer", "agent", 1),
        ("torch-mi250-minitoy", "rocm-roctracer", "agent", 2),
        ("torch-mi350x-rocprofiler-sdk", "rocm-sdk", "index", 0),
        ("torch-nvidia-a100-alexnet", "cuda", "index", 0),
        ("torch-nvidia-hta-2of128-ranks/1", "cuda", "index", 1),
    ],
)
def test_device_numbers_are_kept_as_the_back_end_gives_them(
    name, back_end, numbering, device, profile_of
):
    profile = profile_of(name)
    assert (profile.meta["backend"], profile.meta["device_numbering"]) == (back_end, numbering)
    assert profile.device_events["device"].unique().tolist() == [device]


@pytest.mark.parametrize("name", TRACES)
def test_every_time_is_exact_to_the_nanosecond(name, recordings, profile_of):
    data = (recordings / name.partition("/")[0] / TRACES[name]).read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    trace = json.loads(text, parse_float=Decimal)
    base = trace.get("baseTimeNanoseconds", 0)
    kept = set(profile_of(name).events["source_category"].cat.categories)
    expected = sorted(
        (base + round(event["ts"] * 1000), round(event["dur"] * 1000), event["name"])
        for event in trace["traceEvents"]
        if event["ph"] == "X" and event["cat"] in kept
    )
    events = profile_of(name).events
    assert (
        sorted(zip(events["start_ns"], events["duration_ns"], events["name"], strict=True))
        == expected
    )


def test_one_graph_launch_starts_421_kernels(profile_of):
    events = profile_of("torch-mi300x-vllm-decode-hipgraph").events
    kernels = events[events["kind"] == "kernel"]
    graph = events[events["name"] == "hipGraphLaunch"]
    assert len(graph) == 1
    started = kernels[kernels["correlation_id"] == graph["correlation_id"].item()]
    assert len(started) == 421
    assert (started["launch_ns"] == graph["start_ns"].item()).all()
    assert started["operator"].isna().all()
    copies = events[events["kind"] == "copy"]
    assert copies["bytes"].notna().all()


# Several ranks


@pytest.mark.parametrize("part", FUSED)
def test_fused_ranks(part, recordings, manifest):
    folder = "torch-mi300-ddp-4ranks-fused"
    truth = manifest[folder]["truth"][part]
    profile = read_torch_trace(recordings / folder / f"{part}.json.gz")
    assert profile.meta["events_total"] == truth["events_total"]
    assert len(profile.meta["ranks"]) == profile.events["rank"].nunique() == truth["ranks"]
    assert len(of(profile, "kernel")) == truth["kernel_events"]
    assert total_us(of(profile, "kernel")) == truth["kernel_total_us"]
    for expected in truth["per_rank"]:
        events = profile.events[profile.events["rank"] == expected["rank"]]
        own = Profile(events, meta=profile.meta)
        found = {
            "kernel_events": len(of(own, "kernel")),
            "collectives_by_name": by_collective(events[events["kind"] == "collective"]),
            "gpu_busy_us": busy_ns(of(own, *GPU_CATEGORIES)) / 1000,
        }
        assert found == {key: expected[key] for key in found}


def test_fused_ranks_keep_their_own_ids_and_links(recordings):
    folder = recordings / "torch-mi300-ddp-4ranks-fused"
    profile = read_torch_trace(folder / "merged_all_events.json.gz", rank=3)
    events = profile.events
    assert profile.meta["rank"] == 3
    assert events["rank"].unique().tolist() == [3]
    assert events["process"].dropna().unique().tolist() == [3194585]
    assert events["correlation_id"].max() < 100_000
    assert profile.device_events["launch_ns"].notna().all()
    assert profile.device_events["operator"].notna().all()
    assert profile.meta["backend"] == "rocm"


# Written traces


def in_a_row(first: int, last: int, device: int = 2, **arguments: int) -> list[TraceEvent]:
    """Kernels of 400 µs, 2 µs apart."""
    return [
        kernel("k", 1_000_000 + 402_000 * one, 400_000, one + 1, device=device, **arguments)
        for one in range(first, last)
    ]


FUNCTIONS = {
    "kernel": kernel,
    "call": call,
    "operator": operator,
    "kernels": in_a_row,
    "event": lambda *given, **arguments: TraceEvent(*given, arguments=arguments),
    "text": str,
    "operators": lambda count: [
        operator(f"aten::op{i}", 1_000 + i, 5, i + 1) for i in range(count)
    ],
}
CASES = cases("torch")


@pytest.mark.parametrize("name", CASES)
def test_a_written_trace(name, tmp_path):
    parts = [made(FUNCTIONS, *one) for one in CASES[name]["write"]]
    events = [event for one in parts for event in (one if isinstance(one, list) else [one])]
    profile = read_torch_trace(write_trace(tmp_path / "t.json", events))
    check(profile, CASES[name], BASE_NS)


def test_python_functions_on_request(tmp_path):
    path = write_trace(tmp_path / "t.json", small_step())
    events = read_torch_trace(path, python_functions=True).events
    row = events[events["source_category"] == "python_function"]
    assert row["kind"].tolist() == ["annotation"]
    assert row["name"].tolist() == row["short_name"].tolist() == ["train.py(1): <module>"]


@pytest.mark.parametrize(
    "beside",
    [{"stream": 4}, {"device": 3}, {"rank": 1}, {"correlation": 8}, {}],
    ids=["another stream", "another device", "another rank", "same graph", "an early start"],
)
def test_kernels_that_may_overlap_stay_as_they_are(tmp_path, beside):
    row = in_a_row(0, 40, rank=0)
    longer = 402_000 + 30_000 if not beside else 402_000 + 200_000
    row[7] = dataclasses.replace(row[7], duration_ns=longer)
    row[8] = dataclasses.replace(row[8], arguments=row[8].arguments | beside)
    if beside:
        row[9] = dataclasses.replace(row[9], arguments=row[9].arguments | beside)
    profile = read_torch_trace(write_trace(tmp_path / "t.json", row))
    assert profile.device_events["duration_ns"].tolist()[7] == longer
    assert profile.meta["warnings"] == []


def test_categories_of_old_kineto_are_read_as_todays(tmp_path):
    step = small_step()
    old = {"user_annotation": "Operator"} | {today: name for name, today in _TODAY.items()}
    older = [dataclasses.replace(one, category=old.get(one.category, one.category)) for one in step]
    tables = [
        read_torch_trace(write_trace(tmp_path / "t.json", events)).events
        for events in (step, older, [*older[:4], *step[4:]])
    ]
    for table in tables:
        pd.testing.assert_frame_equal(table, tables[0])


@pytest.mark.parametrize("pid", [1000, 2])
@pytest.mark.parametrize("later_ns", [500_000_000, 50_000])
def test_the_launch_is_unknown_if_ids_repeat(tmp_path, pid, later_ns):
    """Traces of two processes in one file, which may have the same number, as in containers."""
    events = []
    for device, shift in enumerate((0, later_ns)):
        for number in range(1, 21):
            start = 1_000_000 + shift + 200_000 * number
            own = {"External id": number}
            host = [operator(f"op{device}", start, 6_000, number)]
            host.append(call("hipLaunchKernel", start, 5_000, number))
            events += [dataclasses.replace(one, pid=pid if device else 1000) for one in host]
            events.append(kernel("k", start + 10_000, 20_000, number, device=device, **own))
    profile = read_torch_trace(write_trace(tmp_path / "t.json", events))
    (warning,) = profile.meta["warnings"]
    assert "20 calls" in warning
    assert profile.device_events["launch_ns"].isna().all()
    assert profile.device_events["operator"].isna().all()
    assert len(launching_calls(profile.events)[0]) == 0


# Properties

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
NANOSECONDS = st.integers(1, 90 * 86_400 * 10**9)
DURATIONS = st.integers(0, 10**12)


def host_event(category: str) -> st.SearchStrategy[TraceEvent]:
    arguments = st.fixed_dictionaries({"correlation": st.integers(0, 50)})
    return st.builds(
        TraceEvent,
        st.just(category),
        TEXT,
        NANOSECONDS,
        DURATIONS,
        st.integers(0, 2**31),
        st.integers(0, 2**62),
        arguments,
    )


@st.composite
def device_event(draw) -> TraceEvent:
    device, stream = draw(st.integers(0, 9)), draw(st.integers(0, 2**40))
    arguments = {"device": device, "stream": stream, "correlation": draw(st.integers(0, 50))}
    category = draw(st.sampled_from(GPU_CATEGORIES))
    return TraceEvent(
        category, "k" + draw(TEXT), draw(NANOSECONDS), draw(DURATIONS), device, stream, arguments
    )


EVENTS = st.lists(
    st.one_of(
        host_event("cpu_op"),
        host_event("cuda_runtime"),
        host_event("user_annotation"),
        device_event(),
    ),
    min_size=1,
    max_size=40,
    unique_by=repr,
)


def launch_start(events: list[TraceEvent], number: int) -> int:
    """The start of the outermost call with this correlation id, or -1 if there are several."""
    calls = [
        event
        for event in events
        if event.category == "cuda_runtime" and event.arguments["correlation"] == number
    ]
    outermost: list[TraceEvent] = []
    ends: dict[int, int] = {}
    for event in sorted(calls, key=lambda one: (one.start_ns, -one.duration_ns)):
        if event.start_ns >= ends.get(event.pid, 0):
            outermost.append(event)
        ends[event.pid] = max(ends.get(event.pid, 0), event.start_ns + event.duration_ns)
    return outermost[0].start_ns if len(outermost) == 1 else -1


@settings(deadline=None, max_examples=150)
@given(
    events=EVENTS,
    base_ns=st.sampled_from([None, BASE_NS]),
    since_1970=st.booleans(),
    members_first=st.booleans(),
    space=st.sampled_from(["", " ", "\n    "]),
    name=st.sampled_from(["t.json", "t.json.gz", "t.json.zst"]),
    chunk_bytes=st.sampled_from([7, 64, 1000, 2**20]),
)
def test_what_is_written_is_read(
    tmp_path_factory, events, base_ns, since_1970, members_first, space, name, chunk_bytes
):
    shift = 1_700_000_000_123_456_789 if since_1970 and base_ns is None else 0
    events = [
        TraceEvent(**(vars(event) | {"start_ns": event.start_ns + shift})) for event in events
    ]
    path = tmp_path_factory.getbasetemp() / name
    write_trace(path, events, base_ns=base_ns, members_first=members_first, space=space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidyprof.io.byte_stream.CHUNK_BYTES", chunk_bytes)
        table = read_torch_trace(path).events
    expected = pd.DataFrame([vars(event) for event in events]).sort_values(
        "start_ns", kind="stable"
    )
    on_device = expected["category"].isin(GPU_CATEGORIES).to_numpy()
    assert table["start_ns"].tolist() == (expected["start_ns"] + (base_ns or 0)).tolist()
    assert table["duration_ns"].tolist() == expected["duration_ns"].tolist()
    assert table["name"].tolist() == expected["name"].tolist()
    assert table["source_category"].tolist() == expected["category"].tolist()
    place = (
        np.where(on_device, expected["pid"], -1).tolist(),
        np.where(on_device, expected["tid"], -1).tolist(),
    )
    assert (table["device"].fillna(-1).tolist(), table["stream"].fillna(-1).tolist()) == place
    host = [expected[name][~on_device].tolist() for name in ("pid", "tid")]
    assert [table[name][~on_device].tolist() for name in ("process", "thread")] == host
    assert table["thread"][on_device].isna().all()
    wanted = [
        launch_start(events, event["arguments"]["correlation"]) if device else -1
        for event, device in zip(expected.to_dict("records"), on_device, strict=True)
    ]
    found = [-1 if pd.isna(start) else start - (base_ns or 0) for start in table["launch_ns"]]
    assert found == wanted


# Around the reader


def test_a_folder_of_ranks_is_its_files_together(recordings, manifest, profile_of):
    name = "torch-nvidia-hta-2of128-ranks"
    profile = tidyprof.read(recordings / name)
    assert profile.meta["ranks"] == [0, 1]
    assert profile.meta["world_size"] == 128
    (warning,) = profile.meta["warnings"]
    assert "2 of 128 ranks" in warning
    assert [Path(file).name for file in profile.meta["files"]] == [
        TRACES[f"{name}/{rank}"] for rank in (0, 1)
    ]
    for rank in (0, 1):
        alone = profile_of(f"{name}/{rank}").events
        together = profile.events[profile.events["rank"] == rank].reset_index(drop=True)
        assert_same_rows(together, alone)
        assert_same_rows(tidyprof.read(recordings / name, rank=rank).events, alone)


def assert_same_rows(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Equal values; categories may be numbered differently."""
    plain = [
        frame.astype({c: object for c in frame if frame[c].dtype == "category"})
        for frame in (one, other)
    ]
    pd.testing.assert_frame_equal(*plain)
