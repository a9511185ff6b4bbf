"""Profiles as Chrome traces: read back exactly, named for people, arrows from launches, same bytes
each time.
"""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidyprof.export.chrome_trace import write_chrome_trace
from tidyprof.readers.torch.meta import LATEST_BASE_NS
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof.tables.contract import (
    COUNTER_DTYPES,
    DEVICE_KINDS,
    ORIGIN_KINDS,
    Origin,
    Profile,
)
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of
from tidyprof_tests.chrome_writer import small_step, write_trace

ORDER = ["start_ns", "duration_ns", "rank", "device", "stream", "thread", "kind", "name"]


def assert_same_events(
    first: Profile, second: Profile, kinds: tuple[str, ...] | None = None
) -> None:
    tables = []
    for profile in (first, second):
        events = (
            profile.events if kinds is None else profile.events[profile.events["kind"].isin(kinds)]
        )
        events = events.astype(dict.fromkeys(events.select_dtypes("category"), "string"))
        tables.append(events.sort_values(ORDER, kind="stable", ignore_index=True))
    columns = [column for column in tables[0].columns if column in tables[1].columns]
    pd.testing.assert_frame_equal(tables[0][columns], tables[1][columns])


@pytest.fixture
def profile(tmp_path) -> Profile:
    return read_torch_trace(write_trace(tmp_path / "source.json", small_step()))


def written(profile: Profile, path) -> dict:
    write_chrome_trace(profile, path)
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


RECORDED = [
    "torch-mi300x-resnet-ddp-rank0/resnet_act_checkpoint.json.gz",
    "torch-mi300-ddp-4ranks-fused/merged_nccl_only.json.gz",
    "torch-mi300x-vllm-decode-hipgraph/graph_execution.json.gz",
    "torch-mi210-gpu-only/gpu_only_trace.json.gz",
    "torch-nvidia-hta-2of128-ranks/sampled_rank-1.json.gz",
]


class TestRoundTrip:
    @pytest.mark.parametrize("file", RECORDED)
    def test_recordings_come_back_as_they_were(self, recordings, tmp_path, file):
        before = read_torch_trace(recordings / file)
        write_chrome_trace(before, tmp_path / "out.json.gz")
        after = read_torch_trace(tmp_path / "out.json.gz")
        assert_same_events(before, after)
        for key in (
            "backend",
            "gpu",
            "rocm",
            "rank",
            "ranks",
            "world_size",
            "tool_version",
            "device_numbering",
        ):
            assert before.meta.get(key) == after.meta.get(key), key

    @settings(max_examples=30)  # each writes a file and reads it
    @given(
        st.lists(
            st.tuples(
                st.sampled_from([*DEVICE_KINDS, "runtime", "operator", "annotation"]),
                st.text(max_size=20),
                st.integers(1, LATEST_BASE_NS),
                st.integers(
                    0, 3600 * 10**9 - 1
                ),  # a kernel of an hour beside short ones is damage to the reader
                st.none() | st.integers(0, 2**31 - 1),
                st.none() | st.integers(0, 100),
            ),
            min_size=1,
            max_size=8,
            unique_by=lambda row: row[2],  # so is what is there twice
        )
    )
    def test_any_device_event(self, tmp_path_factory, rows):
        """Whatever its name and times, if within a hundred days, beyond which the format rounds."""
        first = min(row[2] for row in rows)
        rows = [
            (kind, name, first + (start - first) % 10**15, *more)
            for kind, name, start, *more in rows
        ]
        rows = list(dict.fromkeys(rows))
        source = profile_of(
            *(
                event(
                    kind,
                    name,
                    start,
                    start + duration,
                    rank=rank,
                    correlation_id=correlation,
                    stream=place,
                )
                for place, (kind, name, start, duration, correlation, rank) in enumerate(
                    rows
                )  # a stream for each
            )
        )
        path = tmp_path_factory.mktemp("any") / "out.json"
        write_chrome_trace(source, path)
        after = read_torch_trace(path)
        columns = ["rank", "device", "stream", "start_ns", "duration_ns", "correlation_id", "name"]
        tables = []
        for own in (source, after):
            events = own.device_events[columns].astype({"name": "string"})
            tables.append(events.sort_values(columns, ignore_index=True))
        pd.testing.assert_frame_equal(*tables)

    def test_times_at_and_before_zero_are_shifted_and_it_is_said(self, tmp_path):
        source = profile_of(event("kernel", "a", -500, 100), event("kernel", "b", 0, 7))
        write_chrome_trace(source, tmp_path / "out.json")
        after = read_torch_trace(tmp_path / "out.json")
        assert (after.events["start_ns"] - source.events["start_ns"]).tolist() == [1500, 1500]
        assert json.loads((tmp_path / "out.json").read_text())["converted_from"]["shift_ns"] == 1500

    def test_what_is_unknown_stays_unknown(self, tmp_path):
        source = profile_of(event("kernel", "a", 10, 20, device=pd.NA, stream=pd.NA, rank=pd.NA))
        write_chrome_trace(source, tmp_path / "out.json")
        row = read_torch_trace(tmp_path / "out.json").events.iloc[0]
        assert row[["rank", "device", "stream", "correlation_id", "process", "thread"]].isna().all()

    def test_device_and_process_of_one_number(self, tmp_path):
        source = profile_of(
            event("kernel", "a", 10, 20, device=1, stream=1),
            event("operator", "op", 5, 8),
            host_step(1, 0, 30),
        )
        trace = written(source, tmp_path / "out.json")
        pids = {event["name"]: event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"}
        assert pids["a"] != pids["op"] == pids["ProfilerStep#1"]
        after = read_torch_trace(tmp_path / "out.json")
        assert after.device_events["device"].tolist() == [1]


class TestContent:
    def test_arrows_lead_from_the_call_to_its_work(self, profile, tmp_path):
        trace = written(profile, tmp_path / "out.json")["traceEvents"]
        slices = {
            (event["pid"], event["tid"], event["ts"]): event["name"]
            for event in trace
            if event["ph"] == "X"
        }
        flows: dict[int, list] = {}
        for flow in trace:
            if flow["ph"] in "sf":
                flows.setdefault(flow["id"], []).append(
                    slices[flow["pid"], flow["tid"], flow["ts"]]
                )
        assert list(flows.values()) == [
            ["hipExtModuleLaunchKernel", "Cijk_Ailk_Bljk_SB_MT64x64x32"],
            ["hipMemcpyAsync", "Memcpy HtoD (Host -> Device)"],
        ]

    def test_processes_without_a_rank_keep_their_launches(self, tmp_path):
        """Both call it 5; what process 2 launched at 1300 stays its work in the trace and when that
        is read.
        """
        rows = []
        for process, begin in ((1, 1000), (2, 1300)):
            own = {"rank": None, "process": process, "correlation_id": 5}
            rows.append(event("runtime", "hipLaunchKernel", begin, begin + 50, **own))
            rows.append(
                event(
                    "kernel",
                    "k",
                    begin + 500,
                    begin + 900,
                    device=process + 6,
                    launch_ns=begin,
                    **own,
                )
            )
        trace = written(profile_of(*rows), tmp_path / "out.json")["traceEvents"]
        flows = [(flow["ph"], flow["pid"]) for flow in trace if flow["ph"] in "sf"]
        assert flows == [("s", 1), ("f", 7), ("s", 2), ("f", 8)]
        after = read_torch_trace(tmp_path / "out.json").events
        assert after[after["kind"] == "kernel"][["device", "launch_ns"]].to_numpy().tolist() == [
            [7, 1000],
            [8, 1300],
        ]
        assert after["correlation_id"].nunique() == 2

    def test_counters(self, profile, tmp_path):
        rows = [
            (2_000, 2, "power", 500.5, "W"),
            (3_000, pd.NA, "load", 0.5, None),
            (4_000, 2, "power", np.nan, "W"),
        ]
        counters = pd.DataFrame(rows, columns=list(COUNTER_DTYPES)).astype(COUNTER_DTYPES)
        source = Profile(
            profile.events.assign(start_ns=profile.events["start_ns"] % 10**9), counters
        )
        write_chrome_trace(source, tmp_path / "out.json")
        trace = json.loads((tmp_path / "out.json").read_text())
        base = trace["baseTimeNanoseconds"]
        samples = [event for event in trace["traceEvents"] if event["ph"] == "C"]
        assert len(samples) == 2, "JSON has no NaN"
        assert [(base + 1000 * sample["ts"], sample["args"]) for sample in samples] == [
            (2_000, {"W": 500.5}),
            (3_000, {"value": 0.5}),
        ]

    @pytest.mark.parametrize("kind", ORIGIN_KINDS)
    def test_where_the_numbers_come_from_is_read_back(self, profile, tmp_path, kind):
        profile.meta["origin"] = Origin(kind, "MI300X: kernel times within 25 %")
        write_chrome_trace(profile, tmp_path / "out.json")
        assert read_torch_trace(tmp_path / "out.json").origin == profile.origin


class TestFile:
    def test_same_bytes_each_time(self, profile, tmp_path):
        for name in ("a.json.gz", "b.json.gz"):
            write_chrome_trace(profile, tmp_path / name)
        assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()

    def test_an_unfinished_file_leaves_nothing_and_the_old_one(
        self, profile, tmp_path, monkeypatch
    ):
        target = tmp_path / "out.json"
        target.write_text("old")

        def full(*arguments):
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr("tidyprof.export.chrome_trace.launching_calls", full)
        with pytest.raises(OSError, match="No space"):
            write_chrome_trace(profile, target)
        assert [path.name for path in tmp_path.iterdir() if path.name != "source.json"] == [
            "out.json"
        ]
        assert target.read_text() == "old"
