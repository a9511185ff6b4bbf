"""The Speed-of-Light table against the tables that rocprof-compute itself published, and by
hand.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pandas as pd
import pytest

from tidyprof import Origin, Profile
from tidyprof.analyses.roofline import roofline_points
from tidyprof.analyses.speed_of_light import speed_of_light
from tidyprof.readers.rocprof_compute.reader import read_rocprof_compute
from tidyprof_tests.compute_writer import (
    SYSINFO,
    Dispatch,
    long_rows,
    published_rows,
    wide_rows,
    write_folder,
)

COALESCED = "rocprof-compute-mi300x-coalescing/coalesced_profile"
UNCOALESCED = "rocprof-compute-mi300x-coalescing/uncoalesced_profile"
MONTE_CARLO = "rocprof-compute-mi308x-montecarlo"
DATABASE = "rocprof-compute-db-mi350-montecarlo"
WITH_TABLES = (COALESCED, UNCOALESCED, MONTE_CARLO)

DOUBLED = {"MFMA FLOPs (BF16)", "MFMA FLOPs (F16)", "MFMA IOPs (Int8)"}
"""Peaks of gfx942 that rocprof-compute printed twice too high before release 3.2.3."""


@pytest.fixture(scope="session")
def profile_of(recordings: Path):
    cache: dict[str, Profile] = {}

    def read(name: str) -> Profile:
        if name not in cache:
            cache[name] = read_rocprof_compute(recordings / name)
        return cache[name]

    return read


def published(profile: Profile, number: str = "2.1") -> dict[str, dict]:
    rows = published_rows(profile, number)
    return {row["Metric"].removesuffix(" (deprecated)"): row for row in rows}


def by_metric(table: pd.DataFrame) -> dict[str, dict]:
    return {row["metric"]: row for row in table.to_dict("records")}


# Recordings


@pytest.mark.parametrize("name", WITH_TABLES)
def test_values_are_those_the_tool_published(name, profile_of):
    profile = profile_of(name)
    ours, theirs = by_metric(speed_of_light(profile)), published(profile)
    assert len(theirs) >= 31
    for metric, row in theirs.items():
        if metric == "Active CUs":  # no ratio
            continue
        value = ours[metric]["value"]
        if "Avg" not in row:
            assert pd.isna(value), metric
        else:
            assert value == pytest.approx(row["Avg"], abs=0.00501), metric


@pytest.mark.parametrize("name", WITH_TABLES)
def test_peaks_are_those_the_tool_published_but_for_its_errors(name, profile_of):
    profile = profile_of(name)
    ours, theirs = by_metric(speed_of_light(profile)), published(profile)
    for metric in set(ours) & set(theirs):
        peak = theirs[metric].get("Peak")
        if peak is None:
            assert pd.isna(ours[metric]["peak"]), metric
            continue
        wrong = 2.0 if metric in DOUBLED else 16834 / 16384 if "F6F4" in metric else 1.0
        assert ours[metric]["peak"] == pytest.approx(peak / wrong), metric
        if "Pct of Peak" in theirs[metric]:
            expected = theirs[metric]["Pct of Peak"] * wrong
            assert ours[metric]["percent"] == pytest.approx(expected, abs=0.00501 * wrong), metric


def test_a_clock_of_zero_gives_no_peak(profile_of):
    table = by_metric(speed_of_light(profile_of("rocprof-compute-mi350-vcopy")))
    row = table["VALU IOPs"]
    assert row["value"] > 0
    assert pd.isna(row["peak"])
    assert pd.isna(row["percent"])
    # On gfx950 reads are counted by size; without these counters the older formula would say half.
    assert pd.isna(table["L2-Fabric Read BW"]["value"])
    assert table["L2-Fabric Read BW"]["missing"] == "TCC_EA0_RDREQ_128B_sum, TCC_EA0_RDREQ_64B_sum"
    assert table["Wavefront Occupancy"]["missing"] == "SQ_LEVEL_WAVES_ACCUM"


@pytest.mark.parametrize("name", ["rocprof-compute-mi200-vcopy", "rocprof-compute-mi300x-vcopy"])
def test_a_copy_moves_what_it_must(name, profile_of):
    """vecCopy reads and writes 8 MiB: bandwidth times duration is at least that."""
    profile = profile_of(name)
    table = by_metric(speed_of_light(profile, average="totals"))
    total = profile.events["duration_ns"].sum()
    for metric in ("L2-Fabric Read BW", "vL1D Cache BW"):
        assert table[metric]["value"] * total >= 3 * 8 * 2**20
    assert table["L2-Fabric Read BW"]["value"] * total == pytest.approx(3 * 8 * 2**20, rel=0.01)


# By hand


def profile_with(tmp_path: Path, *dispatches: Dispatch, rows=long_rows, **facts: str) -> Profile:
    folder = write_folder(tmp_path, rows(dispatches), SYSINFO | facts)
    return read_rocprof_compute(folder, origin=Origin("modeled", "by hand"))


def test_the_published_example_of_an_mi300a(tmp_path):
    """4303.42 GFLOP/s of FP16 were published as 0.22 % of a doubled peak; of the real one they are
    0.44 %.
    """
    matrix = 4303.42 * 1000 / 512
    dispatch = Dispatch(1, "igemm", 0, 1000, {"SQ_INSTS_VALU_MFMA_MOPS_F16": matrix})
    table = by_metric(
        speed_of_light(profile_with(tmp_path, dispatch, cu_per_gpu="228", gpu_model="MI300A_A1"))
    )
    row = table["MFMA FLOPs (F16)"]
    assert row["value"] == pytest.approx(4303.42)
    assert row["peak"] == pytest.approx(980_582.4)
    assert round(row["percent"], 2) == 0.44


def test_two_ways_to_average(tmp_path):
    fast = Dispatch(1, "a", 0, 1000, {"SQ_INSTS_VALU_MFMA_MOPS_F16": 1000})
    slow = Dispatch(2, "b", 5000, 9000, {"SQ_INSTS_VALU_MFMA_MOPS_F16": 1000})
    profile = profile_with(tmp_path, fast, slow)
    of_dispatches, of_totals = (
        by_metric(speed_of_light(profile, average=way))["MFMA FLOPs (F16)"]
        for way in ("dispatches", "totals")
    )
    assert of_dispatches["value"] == pytest.approx((512 + 512 / 9) / 2)
    assert of_totals["value"] == pytest.approx(2 * 512_000 / 10_000)
    assert of_dispatches["dispatches"] == 2
    with pytest.raises(ValueError, match="average must be one of"):
        speed_of_light(profile, average="median")


def test_dispatches_without_a_counter_do_not_count(tmp_path):
    rows = wide_rows(
        [
            Dispatch(1, "a", 0, 1000, {"SQ_INSTS": 10, "SQ_BUSY_CU_CYCLES": 5}),
            Dispatch(2, "b", 2000, 9, {"SQ_INSTS": 7}),
        ]
    )
    profile = read_rocprof_compute(write_folder(tmp_path, rows))
    row = by_metric(speed_of_light(profile))["IPC"]
    assert (row["value"], row["dispatches"]) == (2.0, 1)


def test_rates_need_times(tmp_path):
    counters = {"SQ_INSTS": 10, "SQ_BUSY_CU_CYCLES": 5, "TCC_REQ_sum": 8}
    rows = wide_rows([Dispatch(1, "a", 0, 1000, counters)], times=False)
    table = by_metric(speed_of_light(read_rocprof_compute(write_folder(tmp_path, rows))))
    assert table["IPC"]["value"] == 2
    assert table["L2 Cache BW"]["missing"] == "duration_ns"


def test_refusals(tmp_path):
    dispatch = Dispatch(1, "a", 0, 1000, {"SQ_WAVES": 1})
    with pytest.raises(ValueError, match="lacks SQ_INSTS_VALU_ADD_F16"):
        speed_of_light(profile_with(tmp_path / "a", dispatch))
    with pytest.raises(ValueError, match="gfx1151"):
        speed_of_light(profile_with(tmp_path / "b", dispatch, gpu_arch="gfx1151"))
    folder = write_folder(tmp_path / "c", wide_rows([dispatch]), sysinfo=None)
    with pytest.raises(ValueError, match=r"sysinfo\.csv"):
        speed_of_light(read_rocprof_compute(folder))
    empty = Profile(
        profile_with(tmp_path / "d", dispatch).events, meta={"sysinfo": {"gpu_arch": "gfx942"}}
    )
    with pytest.raises(ValueError, match="no hardware counters"):
        speed_of_light(empty)


def test_a_database_has_no_counters_of_single_dispatches(recordings):
    database = read_rocprof_compute(next((recordings / DATABASE).glob("*.db")))
    for analysis in (speed_of_light, roofline_points):
        with pytest.raises(ValueError, match="no hardware counters"):
            analysis(database)


PUBLISHED = tomllib.loads((Path(__file__).parent / "published_peaks.toml").read_text("utf-8"))


@pytest.mark.parametrize("model", PUBLISHED["models"])
def test_published_peaks(tmp_path, model):
    published = PUBLISHED["models"][model]
    dispatch = Dispatch(1, "a", 0, 1000, {"TCC_REQ_sum": 1})
    table = by_metric(speed_of_light(profile_with(tmp_path, dispatch, **published["sysinfo"])))
    peaks = [table[metric]["peak"] for metric in PUBLISHED["metrics"]]
    assert peaks == pytest.approx(published["peaks"], rel=2e-5)
