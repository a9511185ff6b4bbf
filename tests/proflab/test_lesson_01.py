"""The exercises of lesson 01 on what its stand-ins write, on logs checked by hand, and on the recording of a node."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from proflab.errors import CourseError
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts import watched_runs
from proflab.parts.power_map import power_map
from proflab.parts.recorded_decode import EMBEDDING, NAME, PARAMETERS, Decode, recorded_decode
from proflab.parts.watched_runs import Speed, WatchedRun, one_table, samples_at_work, stated_limit, watched_run
from proflab.standins import sensors
from proflab.standins.__main__ import main as stand_in
from tidyprof import plots
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

from .training_records import records, write_records

lesson = exercises_of("01")

TRAINER = "-m cifar_train --max-epochs 10 --max-steps 40"
COMMANDS = {
    "healthy": f"python {TRAINER}",
    "slow-loader": f"python {TRAINER} --pathology slow-loader",
    "tiny-batch": f"python {TRAINER} --pathology tiny-batch",
    "late-rank": "torchrun --nproc-per-node 4 -m cifar_train --max-steps 40 --pathology rank-skew",
}
"""The commands of the lesson's cells on a machine without a GPU."""

SNAPSHOT = "monitor -g 0 -p -t -u -m -v -w 1 -W 1 --csv --file"
"""The lesson's options for one sample."""


def profile_of(*rows: tuple) -> Profile:
    """Rows of second, device, name, value and unit."""
    table = pd.DataFrame(rows, columns=["time_ns", "device", "name", "value", "unit"])
    table["time_ns"] = (table["time_ns"].astype(float) * 1e9).astype("int64")
    table = table.astype({"device": "Int32", "name": "category", "value": "float64", "unit": "category"})
    events = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_DTYPES.items()})
    return Profile(events, table, {"origin": Origin("modelled", "by hand")})


def run_of(
    name: str, *gpus: tuple[float, float], batch: int = 256, rate: float = 1000.0, limit: float | None = 750.0
) -> WatchedRun:
    """A run with busy % and power W of each GPU; 2 FLOP per image and a peak of 20,000 FLOP/s."""
    rows = [
        (0, device, quantity, value, unit)
        for device, (busy, power) in enumerate(gpus)
        for quantity, value, unit in (("gpu_busy", busy, "%"), ("power", power, "W"))
    ]
    return WatchedRun(name, "by hand", profile_of(*rows), batch, Speed(rate, 2.0, 20_000.0), limit)


def four_runs(healthy: WatchedRun, tiny: WatchedRun) -> tuple[WatchedRun, ...]:
    """What exercise 01.5 gets; only these two of the runs are looked at."""
    return healthy, run_of("slow-loader", (0, 171)), tiny, run_of("late-rank", (90, 300))


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, WatchedRun]]:
    """The lesson's four runs, their logs written by the stand-ins."""
    yield from written_by_stand_ins(tmp_path_factory.mktemp("watched"), "MI300X")


@pytest.fixture(scope="module", params=["MI300X", "MI250X"])
def of_each_device(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, WatchedRun]]:
    """The four runs on a GPU that waits for its host, and on one that does not."""
    yield from written_by_stand_ins(tmp_path_factory.mktemp("watched"), request.param)


@pytest.fixture(scope="module")
def on_mi250x(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, WatchedRun]]:
    yield from written_by_stand_ins(tmp_path_factory.mktemp("watched"), "MI250X")


def written_by_stand_ins(home: Path, device: str) -> Iterator[dict[str, WatchedRun]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")  # no real tool is found
        patch.setenv("PROFLAB_DEVICE", device)
        # One sample shows one moment of a run that goes on for ever: always the same one.
        patch.setattr(sensors, "time", SimpleNamespace(time=lambda: 1_000_000_000.0))
        for name, command in COMMANDS.items():
            folder = home / name
            folder.mkdir()
            (folder / "command.txt").write_text(f"{command}\n")
            patch.setenv("PROFLAB_WORKLOAD", command)
            if name == "late-rank":
                stand_in(["omnistat-query", "--job", "1", "--interval", "0.1", "--export", str(folder)])
            else:
                stand_in(["amd-smi", *SNAPSHOT.split(), str(folder / "smi.csv")])
        yield {name: watched_run(home / name) for name in COMMANDS}


@pytest.fixture(scope="module")
def decode(recordings: Path) -> Decode:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROFLAB_RECORDINGS", str(recordings))
        import proflab

        return recorded_decode(proflab.recording(NAME))


def data_of(number: str, runs: dict[str, WatchedRun]) -> object:
    """What the lesson gives to each exercise."""
    table = one_table(list(runs.values()))
    return {
        "01.1": runs["healthy"],
        "01.2": runs["healthy"],
        "01.3": (runs["healthy"], runs["tiny-batch"]),
        "01.4": runs["late-rank"],
        "01.5": tuple(runs.values()),
        "01.6": table,
    }[number]


@pytest.mark.parametrize("exercise", lesson.EXERCISES, ids=lambda exercise: exercise.id)
def test_right_and_wrong_answers_on_what_the_stand_ins_write(exercise, of_each_device: dict[str, WatchedRun]) -> None:
    runs = of_each_device
    selftest(exercise, data_of(exercise.id, runs))


@pytest.mark.parametrize("exercise", lesson.EXERCISES, ids=lambda exercise: exercise.id)
def test_without_data_nothing_is_judged(exercise) -> None:
    assert exercise.on(None).evaluate(1).outcome is Outcome.NOT_ATTEMPTED


def test_the_modelled_runs_show_what_the_lesson_says(modelled: dict[str, WatchedRun]) -> None:
    healthy, slow, tiny, late = modelled.values()
    assert slow.table["busy_percent"].iloc[0] < 5 < tiny.table["busy_percent"].iloc[0]
    assert slow.table["memory_used_percent"].iloc[0] == pytest.approx(healthy.table["memory_used_percent"].iloc[0])
    assert lesson.step_s(tiny) == pytest.approx(lesson.step_s(healthy), rel=0.1)
    assert lesson.waited_for(late) == 3  # the last rank is the late one, by construction
    assert lesson.must_ring(one_table(list(modelled.values()))).tolist() == [False] * 3 + [True] * 3 + [False]
    assert all(run.profile.origin.kind == "modelled" for run in modelled.values())
    assert "assumed" in str(healthy.profile.origin)


def test_mfu_of_the_healthy_run_agrees_with_the_published_one(modelled: dict[str, WatchedRun]) -> None:
    # AMD's run: 12,787 images/s (median), 128.4 GFLOP per 256 images, peak 1307.4 TFLOP/s: 0.49 %.
    assert lesson.mfu_percent(modelled["healthy"]) == pytest.approx(0.49, rel=0.05)
    assert modelled["healthy"].flops_per_image == pytest.approx(128.4e9 / 256, rel=0.01)


def test_answers_by_hand() -> None:
    run = run_of("a", (50.0, 300.0), (90.0, 150.0))
    assert lesson.power_share(run) == pytest.approx(40)
    assert lesson.mfu_percent(run) == pytest.approx(100 * 1000 * 2 / 20_000)
    assert (lesson.waited_for(run), lesson.waited_for(run, busiest=True)) == (0, 1)
    # 256 images at 1000 a second and 4 at 10 a second: 0.256 s and 0.4 s.
    selftest("01.3", (run, run_of("b", (30.0, 200.0), batch=4, rate=10.0)))
    assert run.table["model_tflops"].tolist() == pytest.approx([2e-9, 2e-9])


def test_a_fraction_and_a_ratio_the_wrong_way_round_get_a_hint(modelled: dict[str, WatchedRun]) -> None:
    healthy = modelled["healthy"]
    assert "percent is asked" in find("01.2").on(healthy).evaluate(healthy.mfu).message
    runs = (run_of("a", (1, 1)), run_of("b", (1, 1), batch=4, rate=10.0))
    assert "upside down" in find("01.3").on(runs).evaluate(0.256 / 0.4).message


def test_one_gpu_has_nobody_to_wait_for() -> None:
    result = find("01.4").on(run_of("a", (50, 300))).evaluate(0)
    assert result.outcome is Outcome.NOT_ATTEMPTED
    assert "the log has one GPU" in result.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("data", "A dictionary of runs"),
        ({"healthy": "host"}, "`slow-loader` is missing"),
        (dict.fromkeys(COMMANDS, "device"), "healthy: not device. Compare it with tiny-batch: the same step time"),
    ],
)
def test_verdicts_say_what_is_wrong(answer: object, words: str) -> None:
    runs = four_runs(run_of("healthy", (50, 300)), run_of("tiny-batch", (30, 200), batch=4, rate=4000 / 256))
    assert words in find("01.5").on(runs).evaluate(answer).message


def verdict_on(healthy: str, busy: float, tiny_step_s: float) -> str:
    """What is said to a verdict on a healthy run with steps of 0.256 s, all others right; empty if it passes."""
    runs = four_runs(run_of("healthy", (busy, 300)), run_of("tiny-batch", (30, 200), batch=4, rate=4 / tiny_step_s))
    answer = {"healthy": healthy, "slow-loader": " data", "tiny-batch": "Host", "late-rank": "data"}
    result = find("01.5").on(runs).evaluate(answer)
    return "" if result.outcome is Outcome.PASSED else result.message


def test_the_verdict_on_the_healthy_run_follows_from_its_steps() -> None:
    assert not verdict_on("host", busy=50, tiny_step_s=0.24)
    assert not verdict_on("device", busy=97, tiny_step_s=0.2)
    assert "healthy: not host. A step of tiny-batch is shorter" in verdict_on("host", busy=97, tiny_step_s=0.2)
    assert "healthy: not data. A step of tiny-batch is shorter" in verdict_on("data", busy=97, tiny_step_s=0.2)
    # A GPU that is idle in between may wait for its images, of which there are fewer too.
    assert not verdict_on("device", busy=40, tiny_step_s=0.2)
    assert not verdict_on("data", busy=40, tiny_step_s=0.2)


def test_a_gpu_that_sets_its_own_pace_is_told_so(
    modelled: dict[str, WatchedRun], on_mi250x: dict[str, WatchedRun]
) -> None:
    said = {}
    for device, runs in (("MI300X", modelled), ("MI250X", on_mi250x)):
        pair = data_of("01.3", runs)
        said[device] = find("01.3").on(pair).evaluate(lesson.step_s(pair[1]) / lesson.step_s(pair[0])).message
    assert "nearly the same time" in said["MI300X"]
    assert "make the step shorter" in said["MI250X"]
    assert lesson.allowed_verdicts(list(on_mi250x.values()))["healthy"] == ("device",)


def test_a_run_is_that_of_the_gpu_that_is_modelled_now(
    modelled: dict[str, WatchedRun], on_mi250x: dict[str, WatchedRun]
) -> None:
    before, after = modelled["healthy"], on_mi250x["healthy"]
    assert before.command == after.command
    assert (before.limit_watt, after.limit_watt) == (750, 280)
    assert before.peak_flops > after.peak_flops


def test_an_alarm_must_not_ring_for_a_gpu_at_its_limit(modelled: dict[str, WatchedRun], decode: Decode) -> None:
    seen = pd.concat([one_table(list(modelled.values())), decode.working])
    selftest("01.6", seen)
    on_busy_alone: Callable[[float, float, float], bool] = lambda busy, power, limit: busy > 80  # noqa: E731
    assert "rings for recorded text generation" in find("01.6").on(seen).evaluate(on_busy_alone).message


def test_an_alarm_for_one_kind_of_gpu_is_wrong_on_another() -> None:
    table = pd.concat([run_of("MI250X", (100.0, 360.0), limit=500.0).table, run_of("spins", (95.0, 300.0)).table])
    fixed: Callable[[float, float, float], bool] = lambda busy, power, limit: busy > 85 and power < 450  # noqa: E731
    assert "It rings for MI250X, GPU 0" in find("01.6").on(table).evaluate(fixed).message
    selftest("01.6", table)


def test_between_working_and_idling_an_alarm_may_do_either() -> None:
    gpus = ((100.0, 324.0), (80.0, 200.0), (95.0, 200.0), (60.0, 200.0), (100.0, 400.0))
    table = run_of("a", *gpus, limit=500.0).table
    assert lesson.must_ring(table).tolist() == [pd.NA, pd.NA, True, False, False]
    selftest("01.6", table)


def test_a_gpu_without_power_or_limit_is_not_judged() -> None:
    sensors_of_a = ((95.0, float("nan")), (95.0, 200.0), (50.0, 300.0))
    table = one_table([run_of("a", *sensors_of_a), run_of("b", (95.0, 200.0), limit=None)])
    assert lesson.must_ring(table).tolist() == [pd.NA, True, False, pd.NA]
    selftest("01.6", table)
    result = find("01.6").on(table.iloc[3:]).evaluate(lambda busy, power, limit: True)
    assert "no power limit is known" in result.message


def test_an_alarm_is_tried_with_sensors_that_are_off() -> None:
    table = run_of("spins", (90.0, 300.0)).table
    at_the_edge: Callable[[float, float, float], bool] = lambda busy, power, limit: busy > 89 and power < 450  # noqa: E731
    assert "also when the sensors are 2 % off" in find("01.6").on(table).evaluate(at_the_edge).message


def test_an_alarm_that_fails_is_no_pass(modelled: dict[str, WatchedRun]) -> None:
    table = one_table(list(modelled.values()))
    result = find("01.6").on(table).evaluate(lambda busy: True)
    assert result.outcome is Outcome.WRONG
    assert "TypeError" in result.message


def test_samples_at_work_are_those_with_the_memory_in_use() -> None:
    used = (0.3e9, 1.8e9, 1.9e9, 0.3e9)
    rows = [(second, 0, "memory_used", value, "bytes") for second, value in enumerate(used)]
    rows += [(second, 0, "gpu_busy", 10.0 * second, "%") for second in range(4)]
    rows += [(second, 1, "gpu_busy", 50.0, "%") for second in range(4)]  # of this GPU no memory was sampled
    kept = samples_at_work(profile_of(*rows)).counters
    assert kept.loc[kept["name"] == "gpu_busy", "value"].tolist() == [10, 20]
    without = profile_of((0, 0, "power", 171.0, "W"))
    assert samples_at_work(without) is without


def test_the_table_has_medians_and_leaves_out_what_was_not_sampled() -> None:
    rows = [(second, 0, "gpu_busy", busy, "%") for second, busy in enumerate((0.0, 90.0, 100.0))]
    run = WatchedRun("a", "by hand", profile_of(*rows, (0, 0, "power", 200.0, "W")), 4, Speed(1, 1, 1), None)
    table = run.table
    assert table["busy_percent"].tolist() == [90]
    assert table["limit_watt"].isna().all()
    assert table["memory_busy_percent"].isna().all()
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == watched_runs.COLUMNS


def test_a_real_run_has_the_trainers_own_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_runs, "is_stand_in", lambda tool: False)
    write_records(tmp_path / "mine", _on_a_gpu())
    (tmp_path / "mine" / "command.txt").write_text("python -m cifar_train\n")
    (tmp_path / "mine" / "smi.csv").write_text(
        "timestamp,gpu,power_usage,max_power,gfx,vram_used,vram_total\n1795298601,0,300,750,50,2000,196592\n"
    )
    run = watched_run(tmp_path / "mine")
    assert run.profile.origin.kind == "measured"
    assert (run.name, run.batch_size, run.images_per_second) == ("mine", 8, 1000.0)
    assert run.flops_per_image == pytest.approx(5e8)
    assert run.mfu == pytest.approx(1000 * 5e8 / 1307.4e12)
    assert run.table[["power_watt", "limit_watt", "limit_from"]].to_numpy().tolist() == [[300, 750, "monitor"]]


LOGS_WITHOUT_LIMIT = {
    "smi.csv": "timestamp,gpu,power_usage,gfx,vram_used,vram_total\n1795298601,0,300,50,2000,196592\n",
    "omnistat-rocm.gpu.csv": "metric,rocm_utilization_percentage,rocm_average_socket_power_watts\n"
    "instance,node01,node01\ncard,0,0\ntimestamp,,\n2025-01-01 10:00:00,50.0,300.0\n",
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
    assert run.table[["power_watt", "limit_watt", "limit_from"]].to_numpy().tolist() == [[300, 750, "course's table"]]
    assert find("01.1").on(run).evaluate(40).outcome is Outcome.PASSED
    unknown = watched_run(folders["MI325X"])
    assert unknown.table[["limit_watt", "limit_from"]].isna().all(axis=None)
    assert "states a power limit of this GPU" in find("01.1").on(unknown).evaluate(40).message


def test_the_limit_is_that_of_what_the_sensor_covers() -> None:
    # One sensor for the two dies of an MI250X, whose card may take 560 W.
    assert stated_limit("AMD Instinct MI250X") == 560
    assert stated_limit("AMD Instinct MI300X") == 750
    assert stated_limit("AMD Instinct MI210") is None


def test_a_limit_in_the_log_counts_more_than_the_table() -> None:
    rows = [(0, device, "gpu_busy", 90.0, "%") for device in (0, 1)]
    rows += [(0, device, "power", 200.0, "W") for device in (0, 1)]
    log = profile_of(*rows, (0, 0, "power_cap", 500.0, "W"))
    table = WatchedRun("a", "by hand", log, 4, Speed(1, 1, 1), 560.0).table
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


def test_stand_ins_are_told_from_real_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proflab.standins.path import LAUNCHERS

    monkeypatch.setenv("PATH", str(LAUNCHERS))
    assert watched_runs.is_stand_in("amd-smi")
    (tmp_path / "amd-smi").write_text("#!/bin/sh\n")
    (tmp_path / "amd-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{LAUNCHERS}")
    assert not watched_runs.is_stand_in("amd-smi")


def test_the_map_has_a_point_for_each_gpu_and_says_so(modelled: dict[str, WatchedRun]) -> None:
    table = one_table(list(modelled.values()))
    figure = power_map(table)
    points = [tuple(point) for drawn in figure.axes[0].collections for point in drawn.get_offsets()]
    assert sorted(points) == sorted(zip(table["busy_percent"], table["power_watt"], strict=True))
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == [
        *("healthy", "slow-loader", "tiny-batch", "late-rank, GPU 3", "late-rank, GPU 0, 1, 2"),
        "power limit, by monitor and course's table",
    ]
    assert plots.describe(figure).startswith("Points of 7 GPUs in 4 runs: the busiest, in late-rank, is busy for 9")
    with pytest.raises(ValueError, match="no run to draw"):
        power_map(table.iloc[:0])


def test_a_map_without_a_known_limit_is_drawn() -> None:
    table = run_of("a", (50.0, 300.0)).table.assign(limit_watt=pd.NA)
    table.attrs["origin"] = "measured: here"
    figure = power_map(table)
    assert [text.get_text() for text in figure.axes[0].texts] == ["a"]
    assert "300 W" in plots.describe(figure)


def test_a_map_of_two_kinds_of_gpu_has_a_line_for_each() -> None:
    table = one_table([run_of("a", (50.0, 300.0)), run_of("b", (50.0, 200.0), limit=560.0)])
    axes = power_map(table).axes[0]
    assert [line.get_ydata()[0] for line in axes.lines] == [560, 750]
    labels = [text.get_text() for text in axes.texts]
    assert labels[2:] == ["power limit of b, by course's table", "power limit of a, by course's table"]


def test_the_recording_gives_the_figures_of_its_own_files(decode: Decode, recordings: Path, manifest: dict) -> None:
    truth = manifest[NAME]["truth"]
    latency = truth["benchmark_json"]["avg_latency_s"]
    assert (decode.prompt, decode.generated) == (128, 128)
    # 8.03e9 parameters without the embedding's 0.525e9: 2 FLOP each for 256 tokens; 2 bytes each, read for 128 tokens.
    assert decode.mfu == pytest.approx(2 * 7.505e9 * 256 / latency / 1307.4e12, rel=1e-3)
    assert decode.bandwidth_share == pytest.approx(2 * 7.505e9 * 128 / latency / 5324.8e9, rel=1e-3)
    assert len(decode.pairs) == truth["gpu_usage"]["samples"]
    assert (decode.pairs["busy_percent"] == 100).sum() == truth["gpu_usage"]["busiest_device"]["samples_at_100"]


def test_the_first_benchmark_ends_when_its_memory_is_free_again(decode: Decode, recordings: Path) -> None:
    raw = pd.read_csv(next((recordings / NAME / "monitoring").glob("gpu_usage_*.csv"))).query("device == 'card0'")
    full = raw[raw["vram_used_bytes"] > 1e9]["timestamp"]
    gaps = full.diff() > 10  # samples come every 5 s
    last = full[: gaps.to_numpy().argmax()].iloc[-1]
    assert last * 10**9 < decode.benchmark.counters["time_ns"].max() <= (last + 6) * 10**9
    at_work = raw[(raw["gpu_use_percent"] == 100) & (raw["timestamp"] <= last)]
    assert len(at_work) == 2  # ten requests of 0.7 s and a warm-up, sampled every 5 s
    assert decode.working["power_watt"].iloc[0] == pytest.approx((685 + 704) / 2)
    assert decode.working[["samples", "limit_from"]].to_numpy().tolist() == [[2, "course's table"]]


def test_the_parameters_are_those_of_the_models_layers() -> None:
    # Llama-3.1-8B: 32 layers, width 4096, 8 heads of 128 for keys and values, 14,336 inside; two norms in each layer.
    attention, inside, norms = 2 * 4096**2 + 2 * 4096 * 8 * 128, 3 * 4096 * 14_336, 2 * 4096
    last_layer = 4096 * 128_256  # not shared with the embedding
    needed = 32 * (attention + inside + norms) + 4096 + last_layer
    assert needed == PARAMETERS - EMBEDDING


def test_another_recording_is_refused() -> None:
    other = SimpleNamespace(name="something", files={"trace.json": Path("trace.json")})
    with pytest.raises(CourseError, match="no benchmark result in it"):
        recorded_decode(other)


def test_the_lesson_names_its_format_and_file_in_every_capture() -> None:
    text = lesson_of("01").source.read_text(encoding="utf-8")
    captures = [line for line in text.splitlines() if line.startswith("# ") and "amd-smi monitor -g" in line]
    assert len(captures) == 2
    assert all("--csv --file runs/01/" in line for line in captures)
    assert json.dumps("runs/01/healthy") in text


def omnistat_cell() -> str:
    """The lesson's cell that watches four ranks, as bash gets it."""
    text = lesson_of("01").source.read_text(encoding="utf-8")
    cell = next(cell for cell in text.split("\n# %%") if "omnistat-usermode --start" in cell)
    return "\n".join(line.removeprefix("# ") for line in re.findall(r"^# .+$", cell.partition("\n")[2], re.MULTILINE))


def tools_in(folder: Path, *names: str) -> Path:
    """A folder with programs that write which of them was called."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f'#!/bin/sh\necho "{folder.name} {name} $1" >> calls.txt\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("installed", [True, False])
def test_the_omnistat_cell_trains_where_its_tools_are_those_of_omnistat(tmp_path: Path, installed: bool) -> None:
    tools = ("omnistat-usermode", "omnistat-query")
    path = tools_in(tmp_path / "path", *tools, "torchrun")
    site = tools_in(tmp_path / "site", *tools)
    environment = {"PATH": f"{path}:/usr/bin:/bin"} | ({"OMNISTAT_DIR": str(site)} if installed else {})
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
