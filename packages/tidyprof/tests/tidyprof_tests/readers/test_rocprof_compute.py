"""The rocprof-compute reader against real workload folders with known figures, and against written
ones.
"""

from __future__ import annotations

import contextlib
import csv
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof import Profile, ProfileReadError, analyses
from tidyprof.analyses.roofline import roofline_ceilings, roofline_points
from tidyprof.analyses.speed_of_light import speed_of_light
from tidyprof.readers.rocprof_compute.reader import read_rocprof_compute
from tidyprof_tests.compute_writer import (
    START_NS,
    Dispatch,
    long_rows,
    two_kernels,
    wide_rows,
    write_csv,
    write_folder,
)
from tidyprof_tests.damage import damaged, one_line
from tidyprof_tests.readers.kit import samples

FOLDERS = {
    "rocprof-compute-mi200-vcopy": "",
    "rocprof-compute-mi300x-vcopy": "",
    "rocprof-compute-mi300x-vcopy-rocpd": "",
    "rocprof-compute-mi350-vcopy": "",
    "rocprof-compute-mi308x-montecarlo": "",
    "rocprof-compute-mi300x-coalescing/coalesced_profile": "MI300X_A1",
    "rocprof-compute-mi300x-coalescing/uncoalesced_profile": "MI300X_A1",
}
DATABASE = "rocprof-compute-db-mi350-montecarlo"
COUNTERS = (
    *("SQ_WAVES", "GRBM_GUI_ACTIVE", "SQ_INSTS_VALU", "TCP_TCC_READ_REQ_sum"),
    *("SQ_LDS_BANK_CONFLICT", "TCC_EA_RDREQ_sum", "TCC_EA0_RDREQ_sum", "TCC_EA0_WRREQ_sum"),
)


@pytest.fixture(scope="session")
def profile_of(recordings: Path):
    cache: dict[str, Profile] = {}

    def read(name: str) -> Profile:
        if name not in cache:
            path = recordings / name
            cache[name] = read_rocprof_compute(
                next(path.glob("*.db")) if name == DATABASE else path
            )
        return cache[name]

    return read


def truth_of(manifest: dict[str, dict], name: str) -> dict:
    recording, _, part = name.partition("/")
    truth = manifest[recording]["truth"]
    return truth[part] if part else truth


def counted(profile: Profile, name: str) -> list[float]:
    """A counter of each dispatch, from the first run of the program that counted it."""
    rows = profile.counters[profile.counters["name"] == name].sort_values(
        "replay_pass", kind="stable"
    )
    return rows.drop_duplicates("dispatch_id").sort_values("dispatch_id")["value"].tolist()


# Recordings


@pytest.mark.parametrize("name", FOLDERS)
def test_counters_and_kernels_of_a_recording(name, manifest, profile_of):
    truth, profile = truth_of(manifest, name)["pmc_perf"], profile_of(name)
    assert profile.meta["layout"] == truth["layout"].partition(" ")[0]
    assert profile.counters["dispatch_id"].nunique() == len(profile.events) == truth["dispatches"]
    for counter in COUNTERS:
        if counter in truth:
            assert counted(profile, counter) == truth[counter], counter
        if f"{counter}_by_dispatch" in truth:
            stated = truth[f"{counter}_by_dispatch"]
            assert counted(profile, counter) == [value for _, value in stated], counter
    if "distinct_counters" in truth:
        assert profile.counters["name"].nunique() == truth["distinct_counters"]
    assert sorted(profile.events["name"].cat.categories) == sorted(truth["kernel_names"])
    for column, stated in (("grid", "grid_size"), ("block", "workgroup_size")):
        assert set(profile.events[column]) == {f"[{size}]" for size in truth[stated]}


@pytest.mark.parametrize("name", [name for name in FOLDERS if not name.endswith("rocpd")])
def test_times_of_a_recording_are_exact(name, manifest, profile_of, recordings):
    truth, profile = truth_of(manifest, name), profile_of(name)
    with (recordings / name / FOLDERS[name] / "pmc_perf.csv").open(newline="") as file:
        raw = [(row["Start_Timestamp"], row["End_Timestamp"]) for row in csv.DictReader(file)]
    events = profile.events.sort_values("dispatch_id")
    if any("." in time for times in raw for time in times):
        lengths = [round(float(end) - float(start)) for start, end in raw]
    else:
        assert events["start_ns"].tolist() == [int(start) for start, _ in raw]
        lengths = [int(end) - int(start) for start, end in raw]
    assert events["duration_ns"].tolist() == lengths
    if "timestamps" in truth:
        assert lengths == truth["timestamps"]["durations_ns"]


@pytest.mark.parametrize("name", FOLDERS)
def test_machine_and_ceilings_of_a_recording(name, manifest, profile_of):
    truth, meta = truth_of(manifest, name), profile_of(name).meta
    facts, sysinfo = truth["sysinfo"], meta["sysinfo"]
    for key in ("gpu_model", "gpu_arch", "rocm_version", "timestamp"):
        assert sysinfo[key] == facts[key]
    for key in ("cu_per_gpu", "num_xcd", "max_sclk"):
        assert sysinfo.get(key, 0) == int(facts[key])
    assert (meta["gpu"], meta["rocm"]) == (facts["gpu_model"], facts["rocm_version"])
    assert ("roofline" in meta) == ("roofline" in truth)
    if "roofline" in truth:
        assert len(meta["roofline"]) == truth["roofline"]["devices"]
        stated = {key: value for key, value in truth["roofline"]["device0"].items() if value}
        assert meta["roofline"][0] | stated == meta["roofline"][0]


def test_zero_clocks_are_unknown_with_a_warning(profile_of):
    meta = profile_of("rocprof-compute-mi350-vcopy").meta
    assert not {"max_sclk", "cur_sclk"} & set(meta["sysinfo"])
    (warning,) = meta["warnings"]
    assert "max_sclk" in warning
    for name in set(FOLDERS) - {"rocprof-compute-mi350-vcopy"}:
        assert profile_of(name).meta["warnings"] == [], name


def test_devices_are_kept_and_driver_ids_named(profile_of):
    vcopy = profile_of("rocprof-compute-mi300x-vcopy")
    assert vcopy.events["device"].tolist() == [60633] * 3
    assert vcopy.meta["device_numbering"] == "driver id"
    assert "device_numbering" not in profile_of("rocprof-compute-mi200-vcopy").meta


RUNS = {
    "rocprof-compute-mi200-vcopy": (24, "2.0.0"),
    "rocprof-compute-mi300x-vcopy": (23, "2.0.0"),
    "rocprof-compute-mi300x-vcopy-rocpd": (12, "3.2.0"),
    "rocprof-compute-mi350-vcopy": (13, "3.1.0"),
    "rocprof-compute-mi308x-montecarlo": (14, None),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_the_program(name, profile_of):
    profile = profile_of(name)
    runs = profile.counters["replay_pass"].max() + 1
    assert (runs, profile.meta.get("tool_version")) == RUNS[name]


@pytest.mark.parametrize("name", ["rocprof-compute-mi200-vcopy", "rocprof-compute-mi300x-vcopy"])
def test_single_runs_that_were_not_joined_are_added(name, profile_of, recordings):
    rows = pd.read_csv(recordings / name / "SQ_LEVEL_WAVES.csv")
    counters = profile_of(name).counters
    sums = counters[counters["name"] == "SQ_LEVEL_WAVES_ACCUM"]
    assert sums["value"].tolist() == rows["SQ_ACCUM_PREV_HIRES"].tolist()
    same_run = counters[counters["replay_pass"].isin(sums["replay_pass"])]
    active = same_run[same_run["name"] == "GRBM_GUI_ACTIVE"]
    assert active["value"].tolist() == rows["GRBM_GUI_ACTIVE"].tolist()


def test_sums_of_levels_are_named_after_their_level(profile_of, recordings):
    names = {"SQ_ACCUM_PREV_HIRES": "SQ_LEVEL_WAVES", "SQ_ACCUM_PREV_HIRES_10": "SQ_IFETCH_LEVEL"}
    rows = pd.read_csv(recordings / "rocprof-compute-mi308x-montecarlo" / "pmc_perf.csv")
    profile = profile_of("rocprof-compute-mi308x-montecarlo")
    for column, level in names.items():
        assert counted(profile, f"{level}_ACCUM") == rows[column].tolist()
    counters = profile.counters
    assert not counters["name"].astype(str).str.contains("PREV_HIRES").any()
    assert set(counters[counters["name"] == "GRBM_COUNT"]["replay_pass"]) == {9, 10}


def test_the_times_of_one_run(profile_of):
    """The dispatches of the long layout come from the one run whose total is the median of the
    twelve.
    """
    profile = profile_of("rocprof-compute-mi300x-vcopy-rocpd")
    events, counters = profile.events, profile.counters
    shown = counters[counters["time_ns"].isin(events["start_ns"])]
    assert set(shown["replay_pass"]) == {4}
    assert events["replays"].tolist() == [12, 12, 12]
    assert events["duration_ns"].between(events["shortest_ns"], events["longest_ns"]).all()
    assert events["longest_ns"].tolist() == [9574, 6811, 6891]


def test_the_analysis_database(manifest, profile_of):
    truth, profile = manifest[DATABASE]["truth"], profile_of(DATABASE)
    # The runtime's kernel that copies is one of the dispatches.
    table = analyses.kernels(profile, include=("kernel", "copy"))
    assert "copy" in profile.events["kind"].tolist()
    assert len(profile.events) == truth["compute_dispatch_rows"]
    assert table["total_ns"].sum() == truth["total_dispatch_ns"]
    stated = truth["kernels_by_duration"]
    assert table["calls"].tolist() == [one["dispatches"] for one in stated]
    assert table["total_ns"].tolist() == [one["duration_ns_sum"] for one in stated]
    assert profile.meta["tool_version"] == next(iter(truth["versions"].values()))
    assert profile.meta["roofline"][0]["HBMBw"] == truth["roofline_HBMBw"]
    assert profile.meta["gpu"] == "MI350"
    average = profile.counters[
        (profile.counters["metric_id"] == "2.1.0") & (profile.counters["statistic"] == "Avg")
    ]
    assert len(average) == truth["compute_kernel_rows"]


# Where the files are


def test_files_of_single_runs_are_read_as_if_analyze_had_joined_them(tmp_path):
    names = ("SQ_WAVES", "SQ_INSTS_VALU")
    dispatches = [
        Dispatch(number, "copy", 50 * number, 5, dict.fromkeys(names, number)) for number in (1, 2)
    ]
    rows = long_rows(dispatches, runs=[{name: run for run, name in enumerate(names)}])
    joined = read_rocprof_compute(write_folder(tmp_path / "joined", rows))
    separate = write_folder(tmp_path / "separate", rows)
    (separate / "pmc_perf.csv").unlink()
    for run, name in enumerate(names):
        own = [row for row in rows if row["Counter_Name"] == name]
        write_csv(separate / f"results_pmc_perf_{run}.csv", own)
    found = tidyprof.read(separate)
    assert joined.counters["replay_pass"].tolist() == [0, 0, 1, 1]
    for table in ("events", "counters"):
        one, other = getattr(joined, table), getattr(found, table)
        pd.testing.assert_frame_equal(one, other[one.columns], check_categorical=False)


# Written folders


def test_counters_of_several_runs(tmp_path):
    runs = {"SQ_WAVES": 0, "SQ_INSTS_VALU_MFMA_MOPS_F16": 2, "SQ_INSTS": 1}
    profile = read_rocprof_compute(write_folder(tmp_path, long_rows(two_kernels(), [runs])))
    by_name = profile.counters.drop_duplicates("name").set_index("name")
    assert by_name["replay_pass"].to_dict() == runs
    first = (
        profile.counters[profile.counters["dispatch_id"] == 1].set_index("name")["time_ns"]
        - START_NS
    )
    assert first.to_dict() == {name: run * 10**9 for name, run in runs.items()}
    # The median of the three runs is the second: 100 ns more per dispatch.
    assert profile.events["duration_ns"].tolist() == [1100, 600, 3100]
    assert profile.events["shortest_ns"].tolist() == [1000, 500, 3000]
    assert profile.events["longest_ns"].tolist() == [1200, 700, 3200]


def test_times_from_timestamps_csv(tmp_path):
    folder = write_folder(tmp_path, wide_rows(two_kernels(), times=False))
    without = read_rocprof_compute(folder)
    assert len(without.events) == 0
    assert set(without.counters["time_ns"]) == {0}
    assert any("no times" in warning for warning in without.meta["warnings"])
    # Numbers are shifted by one in this file, as in a published folder.
    shifted = [Dispatch(d.number + 1, d.name, d.start, d.duration) for d in two_kernels()]
    write_csv(folder / "timestamps.csv", wide_rows(shifted))
    profile = read_rocprof_compute(folder)
    assert profile.events["start_ns"].tolist() == [START_NS, START_NS + 2000, START_NS + 3000]
    assert profile.counters["time_ns"].iloc[0] == START_NS
    write_csv(folder / "timestamps.csv", wide_rows(shifted[1:]))
    assert len(read_rocprof_compute(folder).events) == 0


@pytest.mark.parametrize(("duration", "warns"), [(1090, False), (1110, True)])
def test_times_that_differ_by_more_than_a_tenth_are_reported(tmp_path, duration, warns):
    folder = write_folder(tmp_path, wide_rows([Dispatch(1, "k", START_NS, duration)]))
    write_csv(folder / "timestamps.csv", wide_rows([Dispatch(1, "k", START_NS, 1000)]))
    warnings = read_rocprof_compute(folder).meta["warnings"]
    assert any("contradict each other: 'k'" in warning for warning in warnings) == warns


def test_a_hundredth_of_bad_values_is_dropped_and_counted(tmp_path):
    many = [Dispatch(i, "k", 10 * i, 5, {"SQ_WAVES": 1, "SQ_INSTS": 2}) for i in range(1, 201)]
    rows = wide_rows(many)
    rows[7] |= {"SQ_WAVES": "inf"}
    rows[9] |= {"SQ_INSTS": -1}
    rows[11] |= {"End_Timestamp": rows[11]["Start_Timestamp"] - 1}
    profile = read_rocprof_compute(write_folder(tmp_path, rows))
    assert profile.meta["repairs"] == {
        "counter values not finite": 1,
        "counter values negative": 1,
        "dropped events with negative duration": 1,
    }
    assert len(profile.events) == 199
    assert 12 not in profile.counters["dispatch_id"].tolist()


SMALL_FILES = {
    "two machines": ("sysinfo.csv", b"gpu_arch\ngfx942\ngfx942\n"),
    "no machine": ("sysinfo.csv", b"gpu_arch\n"),
    "a machine half written": ("sysinfo.csv", b"gpu_arch,cu_per_gpu\ngfx942,30"),
    "a machine cut off": ("sysinfo.csv", b"gpu_arch,cu_per_gpu\ngfx942\n"),
    "ceilings in words": ("roofline.csv", b"device,HBMBw\n0,much\n"),
    "negative ceilings": ("roofline.csv", b"device,HBMBw\n0,-5\n"),
    "no ceilings": ("roofline.csv", b"device,HBMBw\n"),
    "an open quote": ("roofline.csv", b'device,HBMBw\n"0,5\n'),
}


@pytest.mark.parametrize("what", SMALL_FILES)
def test_bad_small_files(tmp_path, what):
    name, content = SMALL_FILES[what]
    folder = write_folder(tmp_path, wide_rows(two_kernels()))
    (folder / name).write_bytes(content)
    with pytest.raises(ProfileReadError) as caught:
        read_rocprof_compute(folder)
    one_line(caught.value, folder / name)


@settings(max_examples=40)
@given(st.data())
def test_analyses_of_a_damaged_folder_answer_or_refuse(tmp_path_factory, data):
    name = data.draw(st.sampled_from(["", "-long", "-sysinfo", "-roofline"]))
    sample = samples()[f"rocprof_compute{name}"]
    content = damaged(sample.content, data.draw(sample.changes()))
    path = replace(sample, content=content).write(tmp_path_factory.getbasetemp() / f"fuzz{name}")
    with contextlib.suppress(ProfileReadError):
        profile = read_rocprof_compute(path)
        for analysis in (analyses.kernels, speed_of_light, roofline_points, roofline_ceilings):
            with contextlib.suppress(ValueError):
                analysis(profile)
