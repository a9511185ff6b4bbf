"""The rocprof-sys reader: its recording's files against each other, and written runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tidyprof import Origin, Profile
from tidyprof.readers.rocprof_sys.reader import read_rocprof_sys
from tidyprof_tests import perfetto_writer as w
from tidyprof_tests.damage import refusal
from tidyprof_tests.perfetto_writer import BASE, slice_, start, tracks


@pytest.fixture(scope="session")
def folder(recordings: Path) -> Path:
    return recordings / "rocprof-sys-cpu" / "rocprofsys-python-output"


@pytest.fixture(scope="session")
def profile(folder: Path) -> Profile:
    return read_rocprof_sys(folder)


# The recording: its files say the same


def stacks(profile: Profile) -> list[tuple[tuple[str, ...], int]]:
    """Every call-stack sample as its functions, outermost first, and its time."""
    frames = profile.events[profile.events["kind"] == "sample"]
    return [
        (tuple(rows["name"]), int(rows["duration_ns"].iloc[0]))
        for _, rows in frames.sort_values(["sample", "depth"]).groupby("sample")
    ]


def paths(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """For every row of a table the labels from the outermost one to its own."""
    found: list[tuple[str, ...]] = []
    for label, parent in zip(table["label"], table["parent"], strict=True):
        found.append((*(() if pd.isna(parent) else found[parent]), label))
    return found


def test_the_trace_gives_every_time_of_the_call_tree(profile):
    table = profile.meta["tables"]["sampling_wall_clock"]
    times: Counter[tuple[str, ...]] = Counter()
    for path, duration in stacks(profile):
        times.update({path[: depth + 1]: duration for depth in range(len(path))})
    found = dict(zip(paths(table), table["total_ns"], strict=True))
    assert set(found) == set(times)
    # The table adds up seconds as doubles, the trace has whole nanoseconds.
    assert max(abs(found[path] - times[path]) for path in times) <= 2


# Written runs


def node(prefix: str, depth: int, laps: int, value: float, **statistics: object) -> dict:
    return {
        "hash": 1,
        "prefix": prefix,
        "depth": depth,
        "entry": {"laps": laps, "value": value, "repr_data": value},
        "stats": statistics,
    }


def document(metric: str, nodes: list[dict], unit: str = "sec", pid: int = 7) -> str:
    content = {
        "unit_value": 1,
        "unit_repr": unit,
        "ranks": [{"rank": 0, "graph_size": len(nodes), "graph": nodes}],
        "graph": [[{"node": {"pid": [pid]}}]],
    }
    return json.dumps({"timemory": {metric: content}})


TREE = [
    node("|0>>> main", 0, 1, 10.0, mean=10.0, min=10.0, max=10.0, stddev=0.0),
    node("|0>>> |_load|er", 1, 4, 3.0, mean=0.75, min=0.5, max=1.0, stddev=0.25),
    node("|0>>>   |__read", 2, 9, 1.5),
    node("|1>>>   |_worker", 2, 2, 20.0),
    node("|0>>> |_<b>step</b>", 1, 4, 6.0),
]


def run(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    for name, content in files.items():
        (folder / name.replace("__", "-").replace("_json", ".json")).write_text(content)
    return folder


def table_of(path: Path, metric: str = "wall_clock") -> pd.DataFrame:
    return read_rocprof_sys(path).meta["tables"][metric]


def test_a_tree_of_two_threads(tmp_path):
    table = table_of(run(tmp_path, wall_clock__7_json=document("wall_clock", TREE)))
    assert table["label"].tolist() == ["main", "load|er", "_read", "worker", "<b>step</b>"]
    assert table["thread"].tolist() == [0, 0, 0, 1, 0]
    assert table["parent"].tolist() == [pd.NA, 0, 1, 1, 0]
    assert table["total_ns"].tolist() == [10**10, 3 * 10**9, 15 * 10**8, 2 * 10**10, 6 * 10**9]
    # What another thread did ran beside its caller.
    assert table["self_ns"].tolist() == [10**9, 15 * 10**8, 15 * 10**8, 2 * 10**10, 6 * 10**9]
    assert table["self_percent"].tolist() == [10, 50, 100, 100, 100]
    assert table["min_ns"].tolist() == [10**10, 5 * 10**8, pd.NA, pd.NA, pd.NA]
    assert table["mean_ns"].tolist()[1] == 0.75e9


@pytest.mark.parametrize(
    ("unit", "factor"), [("nsec", 1), ("usec", 1e3), ("msec", 1e6), ("sec", 1e9)]
)
def test_units_of_time(tmp_path, unit, factor):
    path = run(
        tmp_path, wall_clock__7_json=document("wall_clock", [node(">>> a", 0, 1, 2.0)], unit)
    )
    assert table_of(path)["total_ns"].tolist() == [round(2 * factor)]


def test_numbers_that_are_missing_or_no_numbers(tmp_path):
    text = document("wall_clock", [node("|0>>> a", 0, 1, 2.0, mean=1, min="x", max=None, stddev=9)])
    path = run(
        tmp_path,
        wall_clock__7_json=text.replace('"stddev": 9', '"stddev": NaN').replace("1,", "1,", 1),
    )
    row = table_of(path).iloc[0]
    assert row["mean_ns"] == 1e9
    assert row[["min_ns", "max_ns", "std_ns"]].isna().all()


def test_processes_and_ranks_of_a_job(tmp_path):
    """The number at the end of a name is the process, and its start may state the rank."""
    for rank in (0, 1):
        name, pid = f"rank{rank}-", 100 + rank
        table = document("wall_clock", TREE[: 2 + 3 * rank], pid=pid)
        (tmp_path / f"{name}wall_clock-{pid}.json").write_text(table)
        parts = [start(), tracks(pid=pid), slice_(BASE, BASE + 9, f"r{rank}")]
        w.write_trace(tmp_path / f"{name}perfetto-trace-{pid}.proto", *parts)
    profile = read_rocprof_sys(tmp_path)
    assert profile.meta["ranks"] == [0, 1]
    assert profile.meta["processes"] == [100, 101]
    table = profile.meta["tables"]["wall_clock"]
    assert table["rank"].tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert table["process"].tolist() == [100] * 2 + [101] * 5
    assert table["parent"].tolist() == [pd.NA, 0, pd.NA, 2, 3, 3, 2]
    assert profile.events.set_index("name")["rank"].to_dict() == {"r0": 0, "r1": 1}
    one = read_rocprof_sys(tmp_path, rank=1)
    assert set(one.meta["tables"]["wall_clock"]["rank"]) == {1}
    assert one.events["name"].tolist() == ["r1"]


def test_numbers_of_processes_are_no_ranks(tmp_path):
    path = run(tmp_path, wall_clock__100_json=document("wall_clock", TREE, pid=100))
    profile = read_rocprof_sys(path)
    assert profile.meta["tables"]["wall_clock"]["rank"].isna().all()
    assert profile.meta["processes"] == [100]
    named = read_rocprof_sys(path, rank=2, origin=Origin("measured"))
    assert set(named.meta["tables"]["wall_clock"]["rank"]) == {2}
    assert named.origin.kind == "measured"


def test_a_run_without_a_trace(tmp_path):
    profile = read_rocprof_sys(run(tmp_path, wall_clock__7_json=document("wall_clock", TREE)))
    assert len(profile.events) == 0
    assert "launch_ns" in profile.events.columns
    assert profile.meta["tool"] == "rocprof-sys"
    assert profile.meta["processes"] == [7]


# Files that are not sound

TEXT = """\
|---------------------------|
| REAL-CLOCK TIMER          |
|---------------------------|
| LABEL | COUNT | DEPTH     |
"""
JSON = document("wall_clock", TREE)

BAD_JSON = {
    "cut short": (JSON[-30:], ""),
    "a text for a count": ('"laps": 1', '"laps": "x"'),
    "a missing count": ('"laps": 1, ', ""),
    "a negative count": ('"laps": 1', '"laps": -1'),
    "a negative depth": ('"depth": 0', '"depth": -1'),
    "a huge depth": ('"depth": 0', f'"depth": {2**40}'),
    "NaN for a sum": ("10.0", "NaN"),
    "an infinite sum": ("10.0", "Infinity"),
    "a huge sum": ("10.0", "1e300"),
}
BAD_TABLES = {
    what: ("wall_clock-7.json", JSON.replace(*change)) for what, change in BAD_JSON.items()
} | {
    "another structure": ("wall_clock-7.json", '{"timemory": {"wall_clock": []}}'),
    "nested too deep": ("wall_clock-7.json", '{"timemory": ' + "[" * 200_000),
    "metadata cut short": ("metadata-7.json", '{"rocprofiler-systems": {"metadata": {"info"'),
    "other metadata": ("metadata-7.json", '{"rocprofiler-systems": {"metadata": []}}'),
}


@pytest.mark.parametrize("what", BAD_TABLES)
def test_bad_tables(tmp_path, what):
    name, content = BAD_TABLES[what]
    assert content != JSON
    run(tmp_path, peak_rss__7_json=document("peak_rss", TREE, "MB"))
    (tmp_path / name).write_text(content)
    refusal(tmp_path, read_rocprof_sys)


@pytest.mark.parametrize(
    ("name", "content"),
    {"wall_clock-7.txt": TEXT, "metadata-7.json": '{"omnitrace": {"metadata": {}}}'}.items(),
)
def test_a_file_without_measurements_is_refused_alone(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert "contains only" in refusal(tmp_path / name, read_rocprof_sys)
    refusal(tmp_path, read_rocprof_sys)
    run(tmp_path, wall_clock__7_json=JSON)
    assert len(table_of(tmp_path)) == len(TREE)
