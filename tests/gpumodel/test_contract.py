"""The contract of the readers: one run, whatever the format and the damage, gives equal tables,
words and refusals.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.gpumodel.contract_run import (
    EVENTS,
    FEW,
    FORMATS,
    MANY,
    TIED_NS,
    damaged,
    damaged_rows,
    played,
    write,
    write_damaged,
    write_with_two_calls,
)
from tidyprof import EVENT_DTYPES, KINDS, Profile, ProfileReadError, read, short_name

WITH_COMPUTE = (*FORMATS, "rocprof-compute")
_FOLDERS: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    _FOLDERS[:] = [tmp_path_factory.mktemp("contract")]


@functools.cache
def outcome(name: str, damage: str = "healthy") -> Profile | ProfileReadError:
    """What reading the damaged run in a format gives: read once for all tests."""
    path = write_damaged(name, damage, _FOLDERS[0] / damage.replace(" ", "-") / name)
    try:
        return read(path)
    except ProfileReadError as error:
        return error


def plain(name: str) -> Path:
    """The sound run in a format, written once."""
    profile_of(name)
    path = _FOLDERS[0] / "healthy" / name
    return (
        next((file for file in path.iterdir() if file.stem.startswith("trace")), path)
        if name != "rocprofv3-csv"
        else path
    )


def profile_of(name: str, damage: str = "healthy") -> Profile:
    """The profile; a refusal fails the test."""
    found = outcome(name, damage)
    assert isinstance(found, Profile), f"{name}, {damage}: refused: {found}"
    return found


def cases(*axes: Iterable[Any]) -> list[Any]:
    """All combinations, with an identifier that says what each is."""
    return [
        pytest.param(*values, id="-".join(map(str, values)).replace(" ", "_"))
        for values in product(*axes)
    ]


def relative(times: pd.Series, first: int) -> list[int | None]:
    return [None if pd.isna(time) else int(time) - int(first) for time in times.tolist()]


DROPPING = {
    "at time zero": "at time zero",
    "negative": "with negative duration",
    "start impossible": "with an impossible time",
    "duration impossible": "with an impossible time",
    "unfinished": "unfinished when the recording ended",
}
"""Damage -> why its rows are left out, in words that all readers share."""

KEEPING = (
    "healthy",
    "zero length",
    "many zero length",
    "overlapping",
    "out of order",
    "clock stepped",
    "unlaunched",
)
"""Damage after which every row is still there."""


@functools.cache
def true_work(damage: str) -> pd.DataFrame:
    """The device's events that a perfect reader finds, in order of start; times from the first one
    on.
    """
    rank = damaged(damage).ranks[0]
    calls = rank.calls.set_index("correlation_id")
    work = rank.device_work
    shape = {
        what: [
            f"[{x}, {y}, {z}]"
            for x, y, z in work[[f"{what}_{axis}" for axis in "xyz"]].to_numpy().tolist()
        ]
        for what in ("grid", "workgroup")
    }
    work = work.assign(
        launch_ns=work["correlation_id"].map(calls["start_ns"]).astype("Int64"),
        launch_thread=work["correlation_id"].map(calls["thread_id"]).astype("Int64"),
        grid=shape["grid"],
        block=shape["workgroup"],
    )
    if damage in DROPPING:
        work = work.drop(index=damaged_rows(FEW))
    work = work.sort_values(["start_ns", "duration_ns"], kind="stable", ignore_index=True)
    first = work["start_ns"].min()
    return work.assign(start_ns=work["start_ns"] - first, launch_ns=work["launch_ns"] - first)


@functools.cache
def found_work(name: str, damage: str) -> pd.DataFrame:
    """The same of what was read."""
    events = profile_of(name, damage).device_events
    events = events.sort_values(["start_ns", "duration_ns"], kind="stable", ignore_index=True)
    first = events["start_ns"].min()
    return events.assign(start_ns=events["start_ns"] - first, launch_ns=events["launch_ns"] - first)


def test_a_profile_as_the_last_line_of_a_cell_is_one_line() -> None:
    profile = profile_of("kineto")
    assert re.fullmatch(
        r"Profile of torch\.profiler: [\d,]+ events \(.*\), \d+ counter samples; modelled.*",
        repr(profile),
    )
    assert repr(Profile(profile.events[:0])).startswith(
        "Profile of an unknown tool: 0 events (none)"
    )


@pytest.mark.parametrize(("name", "damage"), cases(WITH_COMPUTE, ["healthy", "out of order"]))
def test_events_begin_with_the_contracts_columns_in_order_of_start(name: str, damage: str) -> None:
    events = profile_of(name, damage).events
    assert list(events.columns)[: len(EVENT_DTYPES)] == list(EVENT_DTYPES)
    assert {column: str(events[column].dtype) for column in EVENT_DTYPES} == EVENT_DTYPES
    assert events["start_ns"].is_monotonic_increasing
    assert isinstance(events.index, pd.RangeIndex)
    assert events["kind"].cat.categories.tolist() == list(KINDS)
    assert not events[["kind", "name", "short_name"]].isna().any(axis=None)


@pytest.mark.parametrize(("name", "damage"), cases(FORMATS, (*KEEPING, *DROPPING)))
def test_device_events_are_those_of_the_run(name: str, damage: str) -> None:
    found, true = found_work(name, damage), true_work(damage)
    for column in ("start_ns", "duration_ns"):
        assert found[column].tolist() == true[column].tolist()
    assert found["kind"].astype(str).tolist() == true["kind"].tolist()
    kernels = true["kind"].isin(["kernel", "collective"])
    assert found["name"][kernels].astype(str).tolist() == true["name"][kernels].tolist()
    pairs = found[["name", "short_name"]].astype(str).drop_duplicates()
    assert pairs["short_name"].tolist() == [*map(short_name, pairs["name"])]
    assert found["thread"].isna().all()


@pytest.mark.parametrize(
    ("name", "damage"), cases(FORMATS, ["healthy", "out of order", "clock stepped", "unlaunched"])
)
def test_launches_are_those_of_the_run(name: str, damage: str) -> None:
    found, true = found_work(name, damage), true_work(damage)
    launched = true["launch_ns"].notna()
    assert found["launch_ns"].isna().tolist() == (~launched).tolist()
    assert found["launch_ns"][launched].tolist() == true["launch_ns"][launched].tolist()
    # CSV does not say which thread launched a copy between host and device.
    stated = launched & (
        found["launch_thread"].notna() | (name != "rocprofv3-csv") | (true["kind"] != "copy")
    )
    assert found["launch_thread"][stated].tolist() == true["launch_thread"][stated].tolist()
    assert profile_of(name, damage).meta["device_events_without_launch"] == int((~launched).sum())


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_and_what_it_launched_share_a_correlation_id(name: str) -> None:
    events = profile_of(name).events
    # Calls of RCCL enclose calls of HIP, and have an id of their own.
    calls = events[
        (events["kind"] == "runtime") & ~events["name"].astype(str).str.startswith("nccl")
    ]
    started = calls.set_index("correlation_id")["start_ns"]
    work = profile_of(name).device_events
    assert work["correlation_id"].map(started).tolist() == work["launch_ns"].tolist()


TIES = {"earlier": (-1_000, 0), "later": (500, 9_000), "longer": (0, 5_000), "shorter": (0, -500)}
"""How much later a second call with the same correlation id starts, and how much longer it lasts,
in ns.
"""


@pytest.mark.parametrize(("name", "tie"), cases(FORMATS, TIES))
def test_of_calls_with_one_id_the_first_launched_and_of_these_the_longest(
    name: str, tie: str, tmp_path: Path
) -> None:
    path, calls = write_with_two_calls(name, *TIES[tie], tmp_path)
    right = calls.iloc[1 if tie in ("earlier", "longer") else 0]
    profile = read(path)
    events = profile.events
    both = events[
        events["correlation_id"]
        == events["correlation_id"][events["duration_ns"] == TIED_NS].iloc[0]
    ]
    event = events[events["duration_ns"] == TIED_NS].iloc[0]
    assert len(both) == (2 if name == "rpd" else 3)
    first = (
        profile.device_events["start_ns"].min() - played().ranks[0].device_work["start_ns"].min()
    )
    assert event["launch_ns"] - first == right["start_ns"]
    if name in ("kineto", "rpd"):
        # The others state the launching thread of the event itself.
        assert event["launch_thread"] == right["thread_id"]
    assert profile.meta["device_events_without_launch"] == 0


@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_those_of_the_run(name: str) -> None:
    events = profile_of(name).events
    first = profile_of(name).device_events["start_ns"].min()
    calls = events[
        (events["kind"] == "runtime") & ~events["name"].astype(str).str.startswith("nccl")
    ]
    rank = played().ranks[0]
    true = rank.calls.sort_values(["start_ns", "duration_ns"])
    calls = calls.sort_values(["start_ns", "duration_ns"])
    assert calls["name"].astype(str).tolist() == true["name"].tolist()
    assert relative(calls["start_ns"], first) == relative(
        true["start_ns"], rank.device_work["start_ns"].min()
    )
    assert calls["duration_ns"].tolist() == true["duration_ns"].tolist()
    assert calls["thread"].tolist() == true["thread_id"].tolist()
    assert set(calls["process"].tolist()) == {rank.process_id}
    assert calls[["device", "stream", "launch_ns"]].isna().all(axis=None)


SHARED_DTYPES = {
    "source_category": "category",
    "operator": "category",
    "collective": "category",
    "queue": "Int64",
    "dispatch_id": "Int64",
    "grid": "category",
    "block": "category",
    "bytes": "Int64",
    "launch_ns": "Int64",
    "launch_thread": "Int64",
    "lds_bytes": "Int64",
    "scratch_bytes": "Int64",
    "vgprs": "Int32",
    "accum_vgprs": "Int32",
    "sgprs": "Int32",
    "source_device": "Int32",
    "destination_device": "Int32",
    "memory_device": "Int32",
}
"""Columns after the contract's that more than one reader has."""
ALWAYS = ("source_category", "grid", "block", "bytes", "launch_ns", "launch_thread")
OTHER_NAMES = {"dispatch", "vector_registers", "accumulation_registers", "scalar_registers"}


@pytest.mark.parametrize("name", WITH_COMPUTE)
def test_further_columns_have_one_name_and_type_in_all_readers(name: str) -> None:
    events = profile_of(name).events
    assert not OTHER_NAMES & set(events.columns)
    found = {
        column: str(dtype) for column, dtype in events.dtypes.items() if column in SHARED_DTYPES
    }
    assert found == {column: SHARED_DTYPES[column] for column in found}
    assert set(ALWAYS) <= set(found) or name == "rocprof-compute"
    optional = [
        column for column in found if column not in (*ALWAYS, "queue", "dispatch_id", "operator")
    ]
    assert [column for column in optional if events[column].isna().all()] == []


LAUNCH_FACTS = ("lds_bytes", "scratch_bytes", "vgprs", "accum_vgprs", "sgprs")
_AMD = ("rocprofv3-csv", "rocprofv3-json", "rocpd")
STATED_BY = {
    "stream": FORMATS,
    "process": FORMATS,
    "block": tuple(name for name in FORMATS if name != "perfetto"),
    "grid": (*_AMD, "rocprof-sys"),
    "bytes": tuple(name for name in FORMATS if name != "rocprofv3-csv"),
    "queue": tuple(name for name in FORMATS if name != "kineto"),
    "dispatch_id": (*_AMD, "rocprof-sys", "rocprof-compute"),
    **dict.fromkeys(LAUNCH_FACTS, (*_AMD, "perfetto")),
    "lds_bytes": (*_AMD[1:], "perfetto", "rocprof-sys"),
}
"""Column -> formats whose files state it for each event: a grid in work-items, LDS of the dispatch,
unrounded.
"""
NAMES_OF_TRUTH = {
    "vgprs": "vector_registers",
    "accum_vgprs": "accumulation_registers",
    "sgprs": "scalar_registers",
    "bytes": "copy_bytes",
}


@pytest.mark.parametrize(
    ("name", "column"),
    [
        case
        for case in cases(WITH_COMPUTE, STATED_BY)
        if case.values[0] in STATED_BY[case.values[1]]
    ],
)
def test_further_columns_say_the_same(name: str, column: str) -> None:
    events = profile_of(name).device_events
    true = true_work("healthy").assign(process=played().ranks[0].process_id)
    kinds = ["copy"] if column == "bytes" else ["kernel", "collective"]
    found = events[column][events["kind"].isin(kinds)]
    expected = true[NAMES_OF_TRUTH.get(column, column)][true["kind"].isin(kinds)]
    if name == "rocprof-compute":
        found, expected = found.sort_values().tail(len(expected)), expected.sort_values()
    elif column == "bytes":
        # Copies within a device are kernels in some formats, and have no size there.
        expected = expected[found.notna().tolist()]
        found = found.dropna()
        assert len(found) >= 3
    elif column == "queue":
        found, expected = found - found.min(), expected - expected.min()
    assert not found.isna().any()
    assert found.astype(object).tolist() == expected.astype(object).tolist()


ENTRIES: dict[str, type] = {
    "tool": str,
    "files": list,
    "processes": list,
    "device_numbering": str,
    "events_total": int,
    "events_by_category": dict,
    "not_kept": dict,
    "device_events_without_launch": int,
    "shared_launch_records": int,
    "repairs": dict,
    "warnings": list,
}
"""Entries of `Profile.meta` that every reader of events has, where the file tells."""


@pytest.mark.parametrize(("name", "entry"), cases(FORMATS, ENTRIES))
def test_meta_has_the_same_entries(name: str, entry: str) -> None:
    assert type(profile_of(name).meta.get(entry)) is ENTRIES[entry]


@pytest.mark.parametrize("name", cases(FORMATS))
def test_categories_add_up_to_the_events_and_what_was_not_kept(name: str) -> None:
    profile = profile_of(name)
    by_category, not_kept = profile.meta["events_by_category"], profile.meta["not_kept"]
    assert "operations_by_type" not in profile.meta
    named = profile.events["source_category"].notna().sum()  # rpd's host calls have no category
    assert sum(by_category.values()) == named + sum(not_kept.values())
    counts = profile.events["source_category"].value_counts()
    assert {category: int(count) for category, count in counts.items() if count} == {
        category: count for category, count in by_category.items() if category not in not_kept
    }


@pytest.mark.parametrize("name", WITH_COMPUTE)
def test_a_sound_recording_needs_no_repair_and_no_warning(name: str) -> None:
    meta = profile_of(name).meta
    assert (meta["repairs"], meta["warnings"]) == ({}, [])


ZERO_LENGTH = {"zero length": FEW, "many zero length": MANY}
"""Damage -> how many kernels it leaves without a length, of which the reader warns."""


@pytest.mark.parametrize(("name", "damage"), cases(FORMATS, KEEPING[1:]))
def test_what_is_kept_is_warned_of_in_the_same_words(name: str, damage: str) -> None:
    meta = profile_of(name, damage).meta
    found = [re.sub(r"^trace\S*: ", "", warning) for warning in meta["warnings"]]
    kernels = (true_work("healthy")["kind"] != "copy").sum()
    sentence = (
        f"{ZERO_LENGTH.get(damage)} of {kernels} kernels last 0 ns: their times were not recorded."
    )
    assert found == ([sentence] if damage in ZERO_LENGTH else [])
    assert meta["repairs"] == {}


@pytest.mark.parametrize(("name", "damage"), cases(WITH_COMPUTE, DROPPING))
def test_what_is_left_out_is_counted_in_the_same_words(name: str, damage: str) -> None:
    meta = profile_of(name, damage).meta
    assert meta["repairs"] == {f"dropped events {DROPPING[damage]}": FEW}
    assert meta["warnings"] == []


@pytest.mark.parametrize(("name", "damage"), cases(WITH_COMPUTE, DROPPING))
def test_a_recording_that_lost_more_than_1_percent_of_its_device_events_is_refused(
    name: str, damage: str
) -> None:
    error = outcome(name, f"many {damage}")
    assert isinstance(error, ProfileReadError)
    match = re.fullmatch(r"(\d+) of (\d+) .+ are unusable \((.+)\)", error.found)
    assert match is not None
    assert (match[1], match[3]) == (str(MANY), f"{MANY} {DROPPING[damage]}")
    # Three copies between host and device have a table of their own in some formats.
    assert EVENTS - FEW <= int(match[2]) <= EVENTS


REFUSAL = (
    "24 of ... device events are unusable (24 at time zero)",
    "the profiler lost times or records, or the file was damaged",
    "record again",
)
"""What is found, the cause and the next step, in words that hold for every format."""


@pytest.mark.parametrize("name", cases(WITH_COMPUTE))
def test_a_refusal_has_the_same_words(name: str) -> None:
    error = outcome(name, "many at time zero")
    assert isinstance(error, ProfileReadError)
    assert (re.sub(r"of \d+", "of ...", error.found), error.cause, error.next_step) == REFUSAL


RANK_OF_NAME: dict[str, int | None] = {
    "rank2": 2,
    "trace_rank-2": 2,
    "rank_2": 2,
    "trace.rank.2": 2,
    "7rank2_of_4": 2,
    "RANK2": 2,
    "frank2": None,
    "frank-2": None,
    "rank": None,
    "rank12345678901": None,
}
"""Start of a file's name -> the rank that it states: the word rank, after the start or no letter,
and a number.
"""

RANK_OF_LAUNCHED = {
    "primus-exp[llama]-rank[2].1764": 2,
    "run-rank=2": 2,
    "1764000000.25-TP-2": 2,
    "1764000000.25-TP-2-DECODE": 2,
    "TP-2-EXTEND": 2,
    "1764000000.25-TP-2-DP-1-EP-3-DECODE": 2,
    "1764000000.25-TP-2-memory": 2,
    "1764000000.25-TP-0-rank2": 2,
    "1764000000.25-TP-2-PP-1": None,
    "1764000000.25-TP-2-DP-0-PP-1-EP-2": None,
    "llama_tp2": None,
    "MI300X-TP-2": None,
    "HTTP-2": None,
}
"""Likewise, as Primus and SGLang name what others than rocprofv3 write: of several dimensions one
may be no rank.
"""


@pytest.mark.parametrize(
    ("name", "stem"),
    cases(FORMATS, RANK_OF_NAME)
    + cases((name for name in FORMATS if "rocprofv3" not in name), RANK_OF_LAUNCHED),
)
def test_the_rank_of_a_file_is_in_its_name(name: str, stem: str, tmp_path: Path) -> None:
    written = plain(name)
    for file in (
        sorted(written.parent.iterdir()) if written.is_file() else sorted(written.iterdir())
    ):
        (tmp_path / file.name.replace("trace", stem, 1)).symlink_to(file)
    meta = read(
        tmp_path / written.name.replace("trace", stem, 1) if written.is_file() else tmp_path
    ).meta
    assert (meta.get("rank"), "ranks" in meta) == ((RANK_OF_NAME | RANK_OF_LAUNCHED)[stem], False)


@pytest.mark.parametrize("name", FORMATS)
def test_a_rank_may_be_given_where_no_name_states_it(name: str) -> None:
    profile = read(plain(name), rank=5)
    assert (profile.meta["rank"], set(profile.events["rank"])) == (5, {5})


LAYOUTS = {
    "one file": ("trace",),
    "one level down": ("run/trace",),
    "a file per rank": ("trace_rank0", "trace_rank1"),
    "a folder per rank": ("rank0/trace", "rank1/trace"),
}
"""Folder with recordings -> its files, without their endings."""


@pytest.mark.parametrize(("name", "layout"), cases(FORMATS, LAYOUTS))
def test_a_folder_is_read_as_the_recordings_in_it(name: str, layout: str, tmp_path: Path) -> None:
    places = LAYOUTS[layout]
    run = played(len(places))
    for rank, place in zip(run.ranks, places, strict=True):
        # Each is written as a run of its own, so that nothing but names tells the rank.
        write(name, replace(run, ranks=(rank,)), (tmp_path / place).parent, Path(place).name)
    profile = read(tmp_path)
    assert len(profile.device_events) == EVENTS * len(places)
    if len(places) > 1:
        assert profile.meta["ranks"] == [0, 1]
        assert profile.device_events.groupby("rank").size().to_dict() == {0: EVENTS, 1: EVENTS}
        alone = read(tmp_path, rank=1)
        assert (alone.meta["rank"], set(alone.events["rank"])) == (1, {1})
        assert len(alone.device_events) == EVENTS
        with pytest.raises(ProfileReadError, match="no rank 7, only 0, 1"):
            read(tmp_path, rank=7)


@pytest.mark.parametrize(("name", "kept"), cases(FORMATS, [0, 0.5]))
def test_a_damaged_file_among_ranks_is_not_skipped(name: str, kept: float, tmp_path: Path) -> None:
    run = played(2)
    for rank in run.ranks:
        write(name, replace(run, ranks=(rank,)), tmp_path, f"trace_rank{rank.rank}")
    damaged = max(tmp_path.glob("*rank1*"), key=lambda file: file.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[: int(kept * damaged.stat().st_size)])
    with pytest.raises(ProfileReadError, match=re.escape(damaged.name)):
        read(tmp_path)


@pytest.mark.parametrize("damage", KEEPING[:-1])
def test_rocprof_compute_has_the_dispatches_of_the_run(damage: str) -> None:
    events = profile_of("rocprof-compute", damage).events
    true = _dispatches(damage)
    assert sorted(events["duration_ns"].tolist()) == sorted(true["duration_ns"].tolist())
    assert sorted(events["start_ns"] - events["start_ns"].min()) == sorted(
        true["start_ns"] - true["start_ns"].min()
    )


def test_rocprof_compute_tells_the_kinds_that_others_tell() -> None:
    kinds = profile_of("rocprof-compute").events["kind"].astype(str)
    assert kinds.value_counts().to_dict() == _dispatches("healthy")["kind"].value_counts().to_dict()


def _dispatches(damage: str) -> pd.DataFrame:
    """Copies between host and device are none."""
    true = true_work(damage)
    return true[~true["copy_direction"].isin(["HostToDevice", "DeviceToHost"])]
