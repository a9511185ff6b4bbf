"""The exercises of lesson 01 on what its stand-ins write, on logs checked by hand, and on the recording of a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from proflab.errors import CourseError
from proflab.exercises import Outcome, find, selftest
from proflab.exercises import lesson_01 as lesson
from proflab.parts import watched_runs
from proflab.parts.power_map import power_map
from proflab.parts.recorded_decode import NAME, Decode, recorded_decode
from proflab.parts.watched_runs import Speed, WatchedRun, one_table, samples_at_work, watched_run
from proflab.standins import amd_smi, omnistat, sensors
from tidyprof import plots
from tidyprof.profile import EVENT_DTYPES, Origin, Profile

from .training_records import records, write_records

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


def run_of(name: str, *gpus: tuple[float, float], batch: int = 256, rate: float = 1000.0) -> WatchedRun:
    """A run with busy % and power W of each GPU; 2 FLOP per image and a peak of 20,000 FLOP/s."""
    rows = [
        (0, device, quantity, value, unit)
        for device, (busy, power) in enumerate(gpus)
        for quantity, value, unit in (("gpu_busy", busy, "%"), ("power", power, "W"))
    ]
    return WatchedRun(name, "by hand", profile_of(*rows), batch, Speed(rate, 2.0, 20_000.0), 750.0)


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, WatchedRun]]:
    """The lesson's four runs, their logs written by the stand-ins."""
    home = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")  # no real tool is found
        # One sample shows one moment of a run that goes on for ever: always the same one.
        patch.setattr(sensors, "time", SimpleNamespace(time=lambda: 1_000_000_000.0))
        for name, command in COMMANDS.items():
            folder = home / name
            folder.mkdir()
            (folder / "command.txt").write_text(f"{command}\n")
            patch.setenv("PROFLAB_WORKLOAD", command)
            if name == "late-rank":
                omnistat.main("omnistat-query", ["--job", "1", "--interval", "0.1", "--export", str(folder)])
            else:
                amd_smi.main("amd-smi", [*SNAPSHOT.split(), str(folder / "smi.csv")])
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
        "01.5": table,
        "01.6": table,
    }[number]


@pytest.mark.parametrize("exercise", lesson.EXERCISES, ids=lambda exercise: exercise.id)
def test_right_and_wrong_answers_on_what_the_stand_ins_write(exercise, modelled: dict[str, WatchedRun]) -> None:
    names = {"healthy": modelled["healthy"], "tiny": modelled["tiny-batch"], "late": modelled["late-rank"]}
    selftest(exercise, data_of(exercise.id, modelled), names)


@pytest.mark.parametrize("exercise", lesson.EXERCISES, ids=lambda exercise: exercise.id)
def test_without_data_nothing_is_judged(exercise) -> None:
    assert exercise.on(None).evaluate(1).outcome is Outcome.NOT_ATTEMPTED


def test_the_modelled_runs_show_what_the_lesson_says(modelled: dict[str, WatchedRun]) -> None:
    healthy, slow, tiny, late = modelled.values()
    assert slow.table["busy_percent"].iloc[0] < 5 < tiny.table["busy_percent"].iloc[0]
    assert slow.table["memory_used_percent"].iloc[0] == pytest.approx(healthy.table["memory_used_percent"].iloc[0])
    assert lesson.step_s(tiny) == pytest.approx(lesson.step_s(healthy), rel=0.1)
    assert lesson.waited_for(late) == 3  # the last rank is the late one, by construction
    assert lesson.is_spinning(one_table(list(modelled.values()))).tolist() == [False] * 3 + [True] * 3 + [False]
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
        (dict.fromkeys(lesson.RIGHT_VERDICTS, "device"), "healthy: not device."),
    ],
)
def test_verdicts_say_what_is_wrong(answer: object, words: str) -> None:
    assert words in find("01.5").on(pd.DataFrame()).evaluate(answer).message


def test_a_late_rank_may_wait_for_data_too() -> None:
    answer = {"healthy": "Host", "slow-loader": " data", "tiny-batch": "host", "late-rank": "data"}
    assert find("01.5").on(pd.DataFrame()).evaluate(answer).outcome is Outcome.PASSED


def test_an_alarm_must_not_ring_for_a_gpu_at_its_limit(modelled: dict[str, WatchedRun], decode: Decode) -> None:
    seen = pd.concat([one_table(list(modelled.values())), decode.working])
    selftest("01.6", seen)
    on_busy_alone: Callable[[float, float], bool] = lambda busy, power: busy > 80  # noqa: E731
    assert "rings for recorded text generation" in find("01.6").on(seen).evaluate(on_busy_alone).message


def test_an_alarm_is_tried_with_sensors_that_are_off() -> None:
    table = run_of("spins", (90.0, 300.0)).table
    at_the_edge: Callable[[float, float], bool] = lambda busy, power: busy > 89 and power < 450  # noqa: E731
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
    assert run.table[["power_watt", "limit_watt"]].to_numpy().tolist() == [[300, 750]]


def _on_a_gpu() -> list[dict]:
    entries = records([20.0, 20.0])
    for entry in entries:
        if entry["record"] in ("run", "summary"):
            entry["device"] = "AMD Instinct MI300X"
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
        *("healthy", "slow-loader", "tiny-batch", "late-rank, GPU 3", "late-rank, GPU 0, 1, 2", "power limit")
    ]
    assert plots.describe(figure).startswith("Points of 7 GPUs in 4 runs: the busiest, in late-rank, is busy for 9")
    with pytest.raises(ValueError, match="no run to draw"):
        power_map(table.iloc[:0])


def test_a_map_without_a_known_limit_is_drawn() -> None:
    table = run_of("a", (50.0, 300.0)).table.assign(limit_watt=pd.NA)
    table.attrs["origin"] = "measured: here"
    figure = power_map(table)
    assert "power limit" not in [text.get_text() for text in figure.axes[0].texts]
    assert "300 W" in plots.describe(figure)


def test_the_recording_gives_the_figures_of_its_own_files(decode: Decode, recordings: Path, manifest: dict) -> None:
    truth = manifest[NAME]["truth"]
    latency = truth["benchmark_json"]["avg_latency_s"]
    assert (decode.prompt, decode.generated) == (128, 128)
    # 8.03e9 parameters: 2 FLOP each for 256 tokens; 2 bytes each, read for 128 tokens.
    assert decode.mfu == pytest.approx(2 * 8.03e9 * 256 / latency / 1307.4e12, rel=1e-3)
    assert decode.bandwidth_share == pytest.approx(2 * 8.03e9 * 128 / latency / 5324.8e9, rel=1e-3)
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


def test_another_recording_is_refused() -> None:
    other = SimpleNamespace(name="something", files={"trace.json": Path("trace.json")})
    with pytest.raises(CourseError, match="no benchmark result in it"):
        recorded_decode(other)


def test_the_lesson_names_its_format_and_file_in_every_capture() -> None:
    text = (Path(__file__).parents[2] / "lessons" / "01_system_view.py").read_text(encoding="utf-8")
    captures = [line for line in text.splitlines() if line.startswith("# ") and "amd-smi monitor -g" in line]
    assert len(captures) == 2
    assert all("--csv --file runs/01/" in line for line in captures)
    assert json.dumps("runs/01/healthy") in text
