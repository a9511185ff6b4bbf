"""Lesson 01: what its checks say on logs made by hand, watched runs and their limits, the map, the
omnistat cell.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from proflab.case import options
from proflab.errors import CourseError
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts import watched_runs
from proflab.parts.watched_runs import WatchedRun, one_table, stated_limit, watched_run
from proflab.parts.work_map import work_map
from proflab.standins import sensors
from proflab.standins.__main__ import main as stand_in
from tidyprof import plots
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

from .training_records import records, write_records

lesson = exercises_of("01")

COMMAND = "python -m cifar_train --max-epochs 10 --max-steps 40"
CASE = options("01")
RUNS = ("case", "small-batch", "late-rank", "text generation", "first window")


def profile_of(*rows: tuple) -> Profile:
    """Rows of second, device, name, value and unit."""
    table = pd.DataFrame(rows, columns=["time_ns", "device", "name", "value", "unit"])
    table["time_ns"] = (table["time_ns"].astype(float) * 1e9).astype("int64")
    table = table.astype(
        {"device": "Int32", "name": "category", "value": "float64", "unit": "category"}
    )
    events = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_DTYPES.items()})
    return Profile(events, table, {"origin": Origin("modelled", "by hand")})


def run_of(
    name: str,
    *gpus: tuple[float, float],
    batch: int = 256,
    rate: float = 1000.0,
    limit: float | None = 750.0,
) -> WatchedRun:
    """A run with busy % and power W of each GPU; 2 FLOP per image and a peak of 20,000 FLOP/s."""
    rows = [
        (0, device, quantity, value, unit)
        for device, (busy, power) in enumerate(gpus)
        for quantity, value, unit in (("gpu_busy", busy, "%"), ("power", power, "W"))
    ]
    return WatchedRun(name, profile_of(*rows), batch, rate, 2.0, 20_000.0, limit)


LOG = pd.DataFrame(
    {
        "window": [1, 2, 2, 2, 3, 4],
        "vram_used_bytes": [0, 2e10, 1e11, 1e11, 0, 1e11],
        "gpu_use_percent": [0, 0, 1, 100, 0, 100],
    }
)
"""GPU 0 of the node: in its first window with a model it works for the last of three samples."""


def three_runs(
    busy: float = 16, small_step_s: float = 0.1, small_busy: float = 31
) -> tuple[Any, ...]:
    """What exercise 01.1 gets: the case, whose step takes 0.256 s, the same with 4 images, a late
    rank, and a log.
    """
    small = run_of("small-batch", (small_busy, 230), batch=4, rate=4 / small_step_s)
    return run_of("case", (busy, 200)), small, run_of("late-rank", (94, 315), (11, 190)), LOG


def from_stand_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, options: str = ""
) -> WatchedRun:
    """A run of the course's trainer as amd-smi's stand-in shows it."""
    # One sample shows one moment of a run that goes on for ever: always the same one.
    monkeypatch.setattr(sensors, "time", SimpleNamespace(time=lambda: 1_000_000_000.0))
    monkeypatch.setenv("PATH", "")  # no real tool is found
    monkeypatch.setenv("PROFLAB_DEVICE", device)
    monkeypatch.setenv("PROFLAB_WORKLOAD", f"{COMMAND} {options}")
    folder.mkdir()
    (folder / "command.txt").write_text(f"{COMMAND} {options}\n")
    watch = "-g 0 -p -t -u -m -v -w 1 -W 1 --csv --file"
    stand_in(["amd-smi", "monitor", *watch.split(), str(folder / "smi.csv")])
    return watched_run(folder)


def test_mfu_of_the_modelled_run_agrees_with_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # AMD's run: 12,787 images/s (median), 128.4 GFLOP per 256 images, peak 1307.4 TFLOP/s: 0.49 %.
    run = from_stand_in(tmp_path / "healthy", monkeypatch, "MI300X")
    assert run.table["mfu_percent"].iloc[0] == pytest.approx(0.49, rel=0.05)
    assert run.flops_per_image == pytest.approx(128.4e9 / 256, rel=0.01)
    assert run.profile.origin.kind == "modelled"
    assert "assumed" in str(run.profile.origin)


def test_the_case_does_not_wait_for_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = from_stand_in(tmp_path / "case", monkeypatch, "MI300X", CASE)
    small = from_stand_in(tmp_path / "small-batch", monkeypatch, "MI300X", f"{CASE} --batch-size 4")
    busy = case.table["busy_percent"].iloc[0]
    assert 10 < busy <= 20
    # The step got shorter by more than the GPU was busy in it, and most of the small one has
    # nothing to do with images.
    saved = lesson.step_ms(case) - lesson.step_ms(small)
    assert saved - busy / 100 * lesson.step_ms(case) > 20
    assert lesson.fixed_share(case, small) > lesson.HOST_SHARE
    selftest("01.1", (case, small, *three_runs()[2:]))


def test_a_gpu_that_sets_its_own_pace_is_told_so() -> None:
    runs = three_runs(busy=97, small_step_s=0.05)
    selftest("01.1", runs)
    assert lesson.open_verdicts(runs)["case"] == {"device"}


RIGHT = {
    "case": {"Data", "host "},
    "small-batch": "host",
    "late-rank": ("data", "host"),
    "text generation": ["device"],
    "first window": {"host", "data"},
}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("data", "A dictionary of runs"),
        ({"case": "host"}, "case: you rule out data, and nothing that you saw does."),
        ({"case": ["data", "host"]}, "`small-batch` is missing"),
        (dict.fromkeys(RUNS, "device"), "case: not device. The GPU is idle for 84 % of the time"),
        (
            RIGHT | {"small-batch": {"data", "host"}},
            "small-batch: not data. Next to nothing of this step",
        ),
        (
            RIGHT | {"late-rank": {"data", "device"}},
            "late-rank: not device. The GPU that the others wait for",
        ),
        (
            RIGHT | {"first window": "device"},
            "first window: not device. Its median activity is 1 % in that window",
        ),
        (
            RIGHT | {"first window": "host"},
            "first window: you rule out data, and nothing that you saw does",
        ),
        (RIGHT | {"text generation": {"network"}}, "text generation: not network. It has one GPU"),
    ],
)
def test_verdicts_say_what_is_wrong(answer: object, words: str) -> None:
    assert words in find("01.1").on(three_runs()).evaluate(answer).message


def test_verdicts_follow_from_the_steps() -> None:
    assert find("01.1").on(three_runs()).evaluate(RIGHT).outcome is Outcome.PASSED
    # Half of the small step grows with its images: its data stay open.
    assert lesson.open_verdicts(three_runs(small_step_s=0.008))["small-batch"] == {"data", "host"}
    assert lesson.open_verdicts(three_runs(busy=80, small_busy=80))["small-batch"] == {"device"}


def test_a_window_at_work_throughout_convicts_the_device() -> None:
    *runs, log = three_runs()
    assert lesson.open_verdicts((*runs, log.assign(gpu_use_percent=95)))["first window"] == {
        "device"
    }


RECORDED = run_of("text generation", (100.0, 686.0), (0.0, 154.0))
"""What the recorded GPU shows at work and without a model: what decides the alarm together with a
run that spins.
"""


def with_recorded(*runs: WatchedRun) -> pd.DataFrame:
    """All GPUs of some runs, and the recorded one."""
    return one_table([*runs, RECORDED])


@pytest.mark.parametrize("busy", [80, 85, 90, 95])
def test_an_alarm_on_busy_alone_is_refused_by_the_recorded_gpu(busy: float) -> None:
    table = with_recorded(run_of("spins", (95.0, 315.0), (94.0, 315.0)))
    result = find("01.2").on(table).evaluate(lambda percent, power, limit: percent > busy)
    assert result.outcome is Outcome.WRONG
    assert (
        "It rings for text generation, GPU 0 (100 % at 686 W). That GPU is as busy, but takes 91 %"
        in result.message
    )
    with pytest.raises(ValueError, match="no counterpart"):
        lesson.alarm_problem(
            lambda percent, power, limit: True, run_of("spins", (95.0, 315.0)).table
        )


def test_a_line_for_power_that_is_too_low_is_told_where_it_belongs() -> None:
    table = with_recorded(run_of("spins", (95.0, 315.0)))
    result = (
        find("01.2")
        .on(table)
        .evaluate(lambda percent, power, limit: percent > 85 and power < 0.4 * limit)
    )
    assert result.outcome is Outcome.WRONG
    assert "midway between the recorded GPU's idle power and its power at work" in result.message


def test_an_alarm_for_one_kind_of_gpu_is_wrong_on_another() -> None:
    table = with_recorded(
        run_of("MI250X", (100.0, 360.0), limit=500.0), run_of("spins", (95.0, 300.0))
    )
    fixed: Callable[[float, float, float], bool] = lambda busy, power, limit: (  # noqa: E731
        busy > 85 and power < 450
    )
    assert "It rings for MI250X, GPU 0" in find("01.2").on(table).evaluate(fixed).message
    selftest("01.2", table)


@pytest.mark.parametrize(
    ("alarm", "words"),
    [
        (
            lambda busy, power, limit: busy > 50 and power < 400,
            "It rings for text generation, GPU 0 (100 % at 274 W",
        ),
        (
            lambda busy, power, limit: busy > 85 and power < limit - 300,
            "It must ring for spins, GPU 0 (95 % at 126 W",
        ),
    ],
)
def test_an_alarm_in_watts_is_wrong_on_a_gpu_with_a_lower_limit(
    alarm: Callable[[float, float, float], bool], words: str
) -> None:
    result = find("01.2").on(with_recorded(run_of("spins", (95.0, 315.0)))).evaluate(alarm)
    assert result.outcome is Outcome.WRONG
    assert f"{words}, were its power limit 300 W: use `limit_watt`)" in result.message


def test_between_working_and_idling_an_alarm_may_do_either() -> None:
    gpus = ((100.0, 324.0), (80.0, 200.0), (95.0, 200.0), (60.0, 200.0), (100.0, 400.0))
    run = run_of("a", *gpus, limit=500.0)
    assert lesson.must_ring(run.table).tolist() == [pd.NA, pd.NA, True, False, False]
    selftest("01.2", with_recorded(run))


def test_a_gpu_without_power_or_limit_is_not_judged() -> None:
    runs = (
        run_of("a", (95.0, float("nan")), (95.0, 200.0), (50.0, 300.0)),
        run_of("b", (95.0, 200.0), limit=None),
    )
    table = one_table(runs)
    assert lesson.must_ring(table).tolist() == [pd.NA, True, False, pd.NA]
    selftest("01.2", with_recorded(*runs))
    result = find("01.2").on(table.iloc[3:]).evaluate(lambda busy, power, limit: True)
    assert "no power limit is known" in result.message


def test_an_alarm_is_tried_with_sensors_that_are_off() -> None:
    table = with_recorded(run_of("spins", (90.0, 300.0)))
    at_the_edge: Callable[[float, float, float], bool] = lambda busy, power, limit: (  # noqa: E731
        busy > 89 and power < 450
    )
    assert "let it ring 2 % earlier" in find("01.2").on(table).evaluate(at_the_edge).message


def test_an_alarm_that_fails_is_no_pass() -> None:
    result = (
        find("01.2").on(with_recorded(run_of("spins", (95.0, 200.0)))).evaluate(lambda busy: True)
    )
    assert result.outcome is Outcome.WRONG
    assert "TypeError" in result.message


def test_the_table_has_medians_of_the_samples_with_the_memory_in_use() -> None:
    used, busy = (0.3e9, 1.8e9, 1.9e9, 1.8e9, 0.3e9), (0.0, 90.0, 80.0, 100.0, 0.0)
    rows = [(second, 0, "memory_used", value, "bytes") for second, value in enumerate(used)]
    rows += [(second, 0, "gpu_busy", value, "%") for second, value in enumerate(busy)]
    table = WatchedRun("a", profile_of(*rows), 4, 1.0, 1.0, 1.0, None).table
    assert table["busy_percent"].tolist() == [90]
    assert (
        table[["power_watt", "limit_watt", "limit_from", "memory_busy_percent"]]
        .isna()
        .all(axis=None)
    )
    without = profile_of(*(row for row in rows if row[2] == "gpu_busy"))
    assert WatchedRun("a", without, 4, 1.0, 1.0, 1.0, None).table["busy_percent"].tolist() == [80]


def test_a_real_run_has_the_trainers_own_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_runs, "is_stand_in", lambda tool: False)
    write_records(tmp_path / "mine", _on_a_gpu())
    (tmp_path / "mine" / "command.txt").write_text("python -m cifar_train\n")
    (tmp_path / "mine" / "smi.csv").write_text(
        "timestamp,gpu,power_usage,max_power,gfx,vram_used,vram_total\n"
        "1795298601,0,300,750,50,2000,196592\n"
    )
    run = watched_run(tmp_path / "mine")
    assert run.profile.origin.kind == "measured"
    assert (run.name, run.batch_size, run.images_per_second) == ("mine", 8, 1000.0)
    assert run.flops_per_image == pytest.approx(5e8)
    assert run.mfu == pytest.approx(1000 * 5e8 / 1307.4e12)
    assert run.table[["power_watt", "limit_watt", "limit_from"]].to_numpy().tolist() == [
        [300, 750, "monitor"]
    ]


LOGS_WITHOUT_LIMIT = {
    "smi.csv": (
        "timestamp,gpu,power_usage,gfx,vram_used,vram_total\n1795298601,0,300,50,2000,196592\n"
    ),
    "omnistat-rocm.gpu.csv": (
        "metric,rocm_utilization_percentage,rocm_average_socket_power_watts\n"
        "instance,node01,node01\ncard,0,0\ntimestamp,,\n2025-01-01 10:00:00,50.0,300.0\n"
    ),
}
"""As amd-smi wrote them before ROCm 7.2, and as omnistat exports them."""


@pytest.mark.parametrize("log", LOGS_WITHOUT_LIMIT)
def test_a_monitor_that_states_no_limit_leaves_it_to_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    monkeypatch.setattr(watched_runs, "is_stand_in", lambda tool: False)
    folders = {}
    for device in ("MI300X", "MI325X"):
        folders[device] = write_records(tmp_path / device, _on_a_gpu(f"AMD Instinct {device}"))
        (folders[device] / "command.txt").write_text("python -m cifar_train\n")
        (folders[device] / log).write_text(LOGS_WITHOUT_LIMIT[log])
    run = watched_run(folders["MI300X"])
    assert run.table[["power_watt", "limit_watt", "limit_from"]].to_numpy().tolist() == [
        [300, 750, "course's table"]
    ]
    unknown = watched_run(folders["MI325X"])
    assert unknown.table[["limit_watt", "limit_from"]].isna().all(axis=None)


def test_the_limit_is_that_of_what_the_sensor_covers() -> None:
    # One sensor for the two dies of an MI250X, whose card may take 560 W.
    assert stated_limit("AMD Instinct MI250X") == 560
    assert stated_limit("AMD Instinct MI300X") == 750
    assert stated_limit("AMD Instinct MI210") is None


def test_a_limit_in_the_log_counts_more_than_the_table() -> None:
    rows = [(0, device, "gpu_busy", 90.0, "%") for device in (0, 1)]
    rows += [(0, device, "power", 200.0, "W") for device in (0, 1)]
    log = profile_of(*rows, (0, 0, "power_cap", 500.0, "W"))
    table = WatchedRun("a", log, 4, 1.0, 1.0, 1.0, 560.0).table
    assert table["limit_watt"].tolist() == [500, 560]
    assert table["limit_from"].tolist() == ["monitor", "course's table"]


def _on_a_gpu(device: str = "AMD Instinct MI300X") -> list[dict]:
    entries = records([20.0, 20.0])
    for entry in entries:
        if entry["record"] in ("run", "summary"):
            entry["device"] = device
        if entry["record"] == "summary":
            entry |= {"images_per_second": 1000.0, "flops_per_second": 5e11}
    return entries


def test_a_run_that_was_not_watched_and_a_gpu_without_a_peak_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CourseError, match="run the cell that watches this run first"):
        watched_run(tmp_path / "nothing")
    monkeypatch.setattr(watched_runs, "is_stand_in", lambda tool: False)
    folder = write_records(tmp_path / "other", records([20.0]))
    (folder / "command.txt").write_text("python -m cifar_train\n")
    (folder / "smi.csv").write_text("timestamp,gpu,power_usage,gfx\n1795298601,0,300,50\n")
    with pytest.raises(CourseError, match="no peak is known of 'Test GPU'"):
        watched_run(folder)


def test_stand_ins_are_told_from_real_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proflab.standins.path import LAUNCHERS

    monkeypatch.setenv("PATH", str(LAUNCHERS))
    assert watched_runs.is_stand_in("amd-smi")
    (tmp_path / "amd-smi").write_text("#!/bin/sh\n")
    (tmp_path / "amd-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{LAUNCHERS}")
    assert not watched_runs.is_stand_in("amd-smi")


def test_the_map_has_a_point_for_each_gpu_and_says_so() -> None:
    spinning = run_of("late-rank", (94.0, 300.0), (93.0, 300.0), (11.0, 200.0), rate=100.0)
    table = one_table([run_of("healthy", (47.0, 450.0)), spinning])
    table["power_share_percent"] = 100 * table["power_watt"] / table["limit_watt"]
    figure = work_map(table)
    # Lines, not a scatter: their black is turned on a dark page.
    points = [tuple(point) for drawn in figure.axes[0].get_lines() for point in drawn.get_xydata()]
    assert sorted(points) == sorted(
        zip(table["busy_percent"], table["power_share_percent"], strict=True)
    )
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == ["late-rank, GPU 2", "healthy", "late-rank, GPU 0, 1"]
    words = plots.describe(figure)
    assert words.startswith(
        "Points of 4 GPUs in 2 runs: the busiest, in late-rank, is busy for 94 % of the time"
    )
    assert words.endswith("The most power, 60 %, is that of healthy at 47 % busy.")


def test_a_gpu_without_a_known_limit_is_not_on_the_map() -> None:
    table = one_table(
        [run_of("healthy", (47.0, 450.0)), run_of("unknown", (94.0, 300.0), limit=None)]
    )
    table["power_share_percent"] = 100 * table["power_watt"] / table["limit_watt"]
    assert [text.get_text() for text in work_map(table).axes[0].texts] == ["healthy"]
    with pytest.raises(ValueError, match="no run to draw"):
        work_map(table[table["run"] == "unknown"])


def omnistat_cell() -> str:
    """The lesson's cell that watches four ranks, as bash gets it."""
    text = lesson_of("01").source.read_text(encoding="utf-8")
    cell = next(cell for cell in text.split("\n# %%") if "omnistat-usermode --start" in cell)
    return "\n".join(
        line.removeprefix("# ")
        for line in re.findall(r"^# .+$", cell.partition("\n")[2], re.MULTILINE)
    )


def tools_in(folder: Path, *names: str) -> Path:
    """A folder with programs that write which of them was called."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f'#!/bin/sh\necho "{folder.name} {name} $1" >> calls.txt\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("installed", [True, False])
def test_the_omnistat_cell_trains_where_its_tools_are_those_of_omnistat(
    tmp_path: Path, installed: bool
) -> None:
    tools = ("omnistat-usermode", "omnistat-query")
    path = tools_in(tmp_path / "path", *tools, "torchrun")
    site = tools_in(tmp_path / "site", *tools)
    environment = {"PATH": f"{path}:/usr/bin:/bin"} | (
        {"OMNISTAT_DIR": str(site)} if installed else {}
    )
    subprocess.run(["bash", "-c", omnistat_cell()], cwd=tmp_path, env=environment, check=True)
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    who = "site" if installed else "path"
    training = ["path torchrun --nproc-per-node"] * installed
    assert calls == [
        f"{who} omnistat-usermode --start",
        *training,
        f"{who} omnistat-usermode --stopexporters",
        f"{who} omnistat-query --job",
        f"{who} omnistat-usermode --stopserver",
    ]
