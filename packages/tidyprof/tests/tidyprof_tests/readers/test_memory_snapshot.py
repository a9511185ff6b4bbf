"""Snapshots of PyTorch's allocator: every number of a small one, several ranks, and what is
none.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof import Profile, memory_blocks, read_memory_snapshot
from tidyprof_tests.damage import refusal
from tidyprof_tests.snapshot_writer import MEBIBYTE, entry, small_snapshot, write

LINE = "/home/me/train.py(12): step"


@pytest.fixture
def small(tmp_path: Path) -> Profile:
    return tidyprof.read(write(tmp_path / "dump_snapshot.pickle", small_snapshot()))


def test_a_history_with_actions_missing_gives_no_curve(tmp_path: Path) -> None:
    snapshot = small_snapshot()
    snapshot["device_traces"][0] = [
        entry("alloc", 1, 9 * MEBIBYTE, 64),
        *snapshot["device_traces"][0][-1:],
    ]
    snapshot["segments"][0]["blocks"] = snapshot["segments"][0]["blocks"][2:]
    profile = read_memory_snapshot(write(tmp_path / "a.pickle", snapshot))
    assert set(profile.counters["name"]) == {"free memory"}
    assert any("history" in warning for warning in profile.meta["warnings"])


def test_sizes_of_no_device_are_no_crash(tmp_path: Path) -> None:
    snapshot = small_snapshot()
    for one in snapshot["segments"][0]["blocks"]:
        one["requested_size"] = one["size"] = 2**63 - 1
    profile = read_memory_snapshot(write(tmp_path / "f.pickle", snapshot))
    assert profile.counters["value"].max() > 2**63


def test_blocks_of_the_end(small: Profile) -> None:
    blocks = memory_blocks(small)
    assert blocks["bytes"].tolist() == [3 * MEBIBYTE, MEBIBYTE, 16 * MEBIBYTE]
    assert blocks["state"].tolist() == ["active_allocated", "active_pending_free", "inactive"]
    assert blocks["requested_bytes"].tolist() == [3 * MEBIBYTE - 100, MEBIBYTE - 100, 0]
    assert set(blocks["segment_bytes"]) == {20 * MEBIBYTE}
    assert blocks["source_line"][0] == LINE
    assert blocks["frames"][0].endswith(f"linear.py(130): forward < {LINE}")
    assert blocks["source_line"].isna().tolist() == [False, True, True]
    assert blocks.attrs["origin"] is small.origin


def test_a_folder_with_a_file_per_rank(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / f"snapshot_rank{rank}.pickle", small_snapshot())
    profile = tidyprof.read(tmp_path)
    assert profile.meta["ranks"] == [0, 1]
    assert memory_blocks(profile).groupby("rank")["bytes"].sum().to_dict() == {
        0: 20 * MEBIBYTE,
        1: 20 * MEBIBYTE,
    }
    assert len(profile.counters) == 8
    alone = tidyprof.read(tmp_path, rank=1)
    assert set(memory_blocks(alone)["rank"]) == {1} == set(alone.events["rank"])


def test_actions_that_are_new_and_keys_that_are_new_are_kept_or_passed_by(tmp_path: Path) -> None:
    snapshot = small_snapshot() | {"host_traces": [], "something": 1}
    snapshot["device_traces"].append([entry("annotate", 9, 0, 5) | {"user_metadata": "weights"}])
    profile = read_memory_snapshot(write(tmp_path / "c.pickle", snapshot))
    assert profile.events["name"].iloc[-1] == "annotate"
    assert profile.events["device"].iloc[-1] == 1


def without_times() -> dict[str, Any]:
    snapshot = small_snapshot()
    snapshot["device_traces"].append([entry("alloc", 5, 7)])
    for action in (action for trace in snapshot["device_traces"] for action in trace):
        del action["time_us"]
    return snapshot


def test_actions_without_times_have_an_order(small: Profile, tmp_path: Path) -> None:
    profile = read_memory_snapshot(write(tmp_path / "a.pickle", without_times()))
    events = profile.events[profile.events["device"] == 0]
    assert events["start_ns"].tolist() == [1, 2, 3, 4, 5]
    for column in ("name", "bytes", "address", "source_line"):
        assert (
            events[column].astype(object).tolist() == small.events[column].astype(object).tolist()
        )
    of_first = profile.counters[profile.counters["device"] == 0]
    assert of_first["value"].tolist() == small.counters["value"].tolist()
    assert profile.meta["times"] == "order"
    assert "no action has a time" in profile.meta["warnings"][-1]
    with pytest.raises(ValueError, match="order"):
        tidyprof.step_budget(profile)


def test_an_action_without_a_time_is_left_out_and_counted(tmp_path: Path) -> None:
    snapshot = small_snapshot()
    del snapshot["device_traces"][0][1]["time_us"]
    path = write(tmp_path / "a.pickle", snapshot)
    profile = read_memory_snapshot(path)
    assert len(profile.events) == 4
    assert any("1 of 5 rows are damaged" in text for text in profile.meta["warnings"])


def changed(**changes: Any) -> dict[str, Any]:
    snapshot = small_snapshot()
    snapshot["device_traces"][0][0] |= changes
    return snapshot


WRONG = {
    "a list": [1, 2, "segments"],
    "segments no list": {"segments": {"a": 1}},
    "segments of numbers": {"segments": [1, 2]},
    "no blocks' sizes": {
        "segments": [{"device": 0, "stream": 0, "address": 1, "total_size": 1, "blocks": [{}]}]
    },
    "a segment of no device": {
        "segments": [{"stream": 0, "address": 1, "total_size": 1, "blocks": [{"size": 1}]}]
    },
    "a device of 40 bits": {"segments": [small_snapshot()["segments"][0] | {"device": 2**40}]},
    "traces no list": {"segments": [], "device_traces": 5},
    "time a text": changed(time_us="now"),
    "size a flag": changed(size=True),
    "address of 64 bits": changed(addr=2**63),
    "action a number": changed(action=7),
    "frames a text": changed(frames="train.py"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_torch_does_not_write_is_refused(name: str, tmp_path: Path) -> None:
    assert "snapshot of PyTorch's allocator" in refusal(
        write(tmp_path / "d.pickle", WRONG[name]), read_memory_snapshot
    )


def test_a_pickle_of_something_else_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "weights.pickle"
    path.write_bytes(pickle.dumps({"weights": [1, 2]}))
    assert "unknown format" in refusal(path, tidyprof.read)
