"""Logs of system monitors: what read_system finds is what the driver of the modelled device would
have shown.
"""

from __future__ import annotations

import csv
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumodel import writers
from gpumodel.run import COUNTERS, Run
from gpumodel.writers.system.readings import readings
from tests.gpumodel.handmade import START_NS, WALL_CLOCK_OFFSET_NS, small_run
from tidyprof import read, read_system
from tidyprof.errors import UserError

SECOND = 10**9
COLUMNS = {
    "gfx_activity": "percent",
    "memory_activity": "percent",
    "power": "watt",
    "gfx_clock": "megahertz",
    "memory_clock": "megahertz",
    "temperature": "degree Celsius",
    "memory_used": "byte",
}


def sampled_run(seconds: int = 3) -> Run:
    """Two ranks with all quantities once a second, half a second after each whole one."""
    ranks = []
    for rank in small_run().ranks:
        rows = []
        for second in range(seconds):
            values = {
                "gfx_activity": 90 + second,
                "memory_activity": 5,
                "power": 500.4 + 100 * rank.rank + second,
                "gfx_clock": 2_100,
                "memory_clock": 1_300,
                "temperature": 50.6,
                "memory_used": (second + 1) * 2**30,
            }
            rows += [
                {
                    "time_ns": START_NS + second * SECOND + SECOND // 2,
                    "name": name,
                    "value": value,
                    "unit": COLUMNS[name],
                }
                for name, value in values.items()
            ]
        ranks.append(replace(rank, counters=pd.DataFrame(rows).astype(COUNTERS)))
    return replace(small_run(), ranks=tuple(ranks), end_ns=START_NS + seconds * SECOND)


def values(profile, name: str, device: int) -> list[float]:
    found = profile.counters
    return (
        found[(found["name"] == name) & (found["device"] == device)]
        .sort_values("time_ns")["value"]
        .tolist()
    )


@pytest.mark.parametrize("flags", ["", "putmv"])
def test_amd_smi_shows_the_latest_sample_in_whole_units(tmp_path, flags):
    path = writers.write("amd-smi", sampled_run(), tmp_path, flags=flags)[0]
    profile = read(path)
    # Nothing is known at second 0; then the samples of half a second before.
    assert values(profile, "power", 0) == [500, 501, 502]
    assert values(profile, "power", 1) == [600, 601, 602]
    assert values(profile, "gpu_busy", 1) == [90, 91, 92]
    assert values(profile, "memory_busy", 0) == [5, 5, 5]
    assert values(profile, "temperature_junction", 0) == [51, 51, 51]
    assert values(profile, "memory_used", 0) == [2**30, 2 * 2**30, 3 * 2**30]
    assert values(profile, "clock_graphics", 0) == [2_100] * 3
    assert profile.meta["repairs"] == {}
    assert profile.meta["time_unit"] == "seconds"
    first = (START_NS + WALL_CLOCK_OFFSET_NS) // SECOND + 1
    assert profile.counters.query("name == 'power'")["time_ns"].min() == first * SECOND


def test_amd_smi_has_the_columns_of_the_present_tool(tmp_path):
    path = writers.write("amd-smi", sampled_run(), tmp_path)[0]
    header = path.read_text().splitlines()[0]
    assert (
        header
        == "timestamp,gpu,xcp,power_usage,hotspot_temperature,memory_temperature,gfx_clk,gfx,mem,"
        "encoder,decoder,vram_used,vram_total"
    )
    wide = writers.write("amd-smi", sampled_run(), tmp_path, flags="pv")[0]
    rows = list(csv.DictReader(wide.read_text().splitlines()))
    assert list(rows[0])[3:] == [
        "power_usage",
        "max_power",
        "vram_used",
        "vram_free",
        "vram_total",
        "vram_percent",
    ]
    # 206141652992 bytes are 196592 MB of 2^20; 1 GB of them is used.
    assert (rows[2]["vram_used"], rows[2]["vram_free"], rows[2]["vram_total"]) == (
        "1024",
        "195568",
        "196592",
    )


def test_one_rank_shows_one_device(tmp_path):
    path = writers.write("amd-smi", sampled_run(), tmp_path, rank=1, interval_s=2)[0]
    profile = read_system(path)
    assert profile.meta["devices"] == [1]
    assert profile.meta["interval_s"] == 2
    # At 2 s the sample of 1.5 s, at 4 s, the first moment after the end, the last one.
    assert values(profile, "power", 1) == [601, 602]


def test_omnistat_has_a_column_per_metric_and_card(tmp_path):
    run = sampled_run()
    path = writers.write("omnistat", run, tmp_path, interval_s=0.5)[0]
    assert path.name == "omnistat-rocm.gpu.csv"
    table = pd.read_csv(path, header=[0, 1, 2], index_col=0)
    assert table.columns[0] == ("rocm_utilization_percentage", "modelled-node", "0")
    assert len(table.columns) == 5 * 2
    assert len(table) == 7
    profile = read(path)
    # The samples of 0.5, 1.5 and 2.5 s, each seen twice, the last one at 3 s too.
    assert values(profile, "power", 0) == [500.4, 500.4, 501.4, 501.4, 502.4, 502.4]
    assert values(profile, "memory_used_percent", 1)[0] == pytest.approx(
        100 * 2**30 / 206_141_652_992
    )
    times = profile.counters["time_ns"].drop_duplicates().diff().dropna()
    assert set(times) == {SECOND // 2}
    assert profile.meta["warnings"] == []
    assert profile.counters["host"].unique().tolist() == ["modelled-node"]


@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        ("amd-smi", {"interval_s": 0.5}, "whole number of seconds"),
        ("amd-smi", {"interval_s": 0}, "no time"),
        ("amd-smi", {"flags": "px"}, "has no option x"),
        ("omnistat", {"interval_s": 0.001}, "0.005 s at the most often"),
        ("omnistat", {"rank": 9}, "no rank 9"),
    ],
)
def test_what_the_tools_refuse_is_refused(tmp_path, tool, options, message):
    with pytest.raises(UserError, match=message):
        writers.write(tool, sampled_run(), tmp_path, **options)


def test_a_run_without_samples_is_refused(tmp_path):
    run = small_run()
    bare = tuple(replace(rank, counters=rank.counters.iloc[:0]) for rank in run.ranks)
    with pytest.raises(UserError, match="no samples of power"):
        writers.write("omnistat", replace(run, ranks=bare), tmp_path)


@given(interval=st.floats(0.01, 5), seconds=st.integers(1, 4))
@settings(max_examples=15)
def test_every_reading_is_the_last_sample_before_it(interval, seconds):
    run = sampled_run(seconds)
    found = readings(run, 0, interval)
    assert found[0].unix_ns == run.start_ns + run.wall_clock_offset_ns
    assert found[-1].unix_ns >= run.end_ns + run.wall_clock_offset_ns
    samples = run.ranks[0].counters.query("name == 'power'")
    for row in found:
        earlier = samples[samples["time_ns"] <= row.unix_ns - run.wall_clock_offset_ns][
            "value"
        ].tolist()
        assert row.values["power"] == (earlier[-1] if earlier else None)
