"""What the profiler hook writes, when, and what it refuses."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess

import pytest

from cifar_train import profiling
from cifar_train.config import TrainConfig
from cifar_train.hooks import PHASES
from cifar_train.schedule import ProfileSchedule
from cifar_train.train import run
from tests.conftest import REPOSITORY
from tidyprof.errors import UserError
from tidyprof_tests.patience import PATIENCE_S


def events(path) -> list[dict]:
    with gzip.open(path) as source:
        return json.load(source)["traceEvents"]


def names(path, category: str) -> list[str]:
    return [event["name"] for event in events(path) if event.get("cat") == category]


def test_default_run_records_steps_9_to_11_with_all_phases(quick):
    result = run(quick(max_steps=20, torch_profile=True))
    trace = result.folder / "trace_rank0_of_1.json.gz"
    assert trace in result.files
    annotations = names(trace, "user_annotation")
    assert sorted(n for n in annotations if n.startswith("ProfilerStep")) == [
        "ProfilerStep#10",
        "ProfilerStep#11",
        "ProfilerStep#9",
    ]
    for phase in PHASES:
        assert annotations.count(phase) == 3
    assert [record.step for record in result.records if record.profiled] == [8, 9, 10, 11]


def test_a_trace_says_how_long_steps_take_without_the_profiler(quick):
    result = run(quick(max_steps=20, torch_profile=True))
    with gzip.open(result.folder / "trace_rank0_of_1.json.gz") as source:
        untraced = json.load(source)[profiling.UNTRACED_KEY]
    plain = [record.duration_ns for record in result.records if 4 <= record.step < 8]
    assert untraced["steps"] == len(plain) == 4
    assert sum(plain) <= 4 * untraced["step_ns"]
    assert 0 < untraced["parts_ns"]["data"] < untraced["step_ns"]


@pytest.mark.parametrize("wait", [0, 1, 4])
def test_a_run_that_waits_for_a_few_steps_times_none_not_even_the_first(quick, wait: int):
    result = run(quick(max_steps=wait + 2, torch_profile=True, profile_wait=wait, profile_active=1))
    with gzip.open(result.folder / "trace_rank0_of_1.json.gz") as source:
        assert profiling.UNTRACED_KEY not in json.load(source)


def test_a_short_run_cuts_its_schedule_and_leaves_a_packed_trace_and_a_sorted_table(quick):
    result = run(quick(max_steps=3, torch_profile=True))
    assert any("wait 0 + warmup 1 + active 2" in note for note in result.notes)
    assert [path.name for path in result.folder.glob("*.json")] == ["config.json"]
    table = (result.folder / "key_averages_rank0_of_1.txt").read_text()
    assert "Self CPU" in table
    shares = [
        float(cell.rstrip("%"))
        for line in table.splitlines()
        for cell in line.split()[1:2]
        if cell.endswith("%") and line.lstrip().startswith("aten::")
    ]
    assert len(shares) > 10
    assert shares == sorted(shares, reverse=True)


def test_profiled_steps_are_kept_out_of_the_median(quick):
    result = run(quick(max_steps=12, torch_profile=True, profile_wait=6, warmup_steps=2))
    steady = [
        record for record in result.records if record.part == "steady" and not record.profiled
    ]
    assert result.summaries[0].steady_steps == len(steady) == 12 - 2 - 4


def test_repeated_cycles_get_files_of_their_own(quick):
    result = run(
        quick(max_steps=6, torch_profile=True, profile_wait=1, profile_active=1, profile_repeat=2)
    )
    made = sorted(path.name for path in result.folder.glob("trace_*"))
    assert made == ["trace_rank0_of_1_cycle1.json.gz", "trace_rank0_of_1_cycle2.json.gz"]


def test_schedule_is_refused_when_the_data_ends_first(quick, monkeypatch):
    from dataclasses import replace

    from cifar_train import train

    build = train.build_loaders
    monkeypatch.setattr(
        train, "build_loaders", lambda *args: replace(build(*args), steps_per_epoch=10)
    )
    with pytest.raises(UserError, match=r"wait 9 .* but the run has only 10"):
        run(quick(max_steps=20, torch_profile=True, profile_wait=9))


@pytest.mark.parametrize(
    ("option", "present"),
    [
        (
            "record_shapes",
            lambda found: any("Input Dims" in event.get("args", {}) for event in found),
        ),
        ("with_stack", lambda found: any(event.get("cat") == "python_function" for event in found)),
        ("profile_memory", lambda found: any(event.get("name") == "[memory]" for event in found)),
    ],
)
def test_options_reach_the_profiler(quick, tmp_path, option, present):
    plain = run(quick(max_steps=2, torch_profile=True, run_dir=tmp_path / "plain"))
    full = run(quick(max_steps=2, torch_profile=True, run_dir=tmp_path / "full", **{option: True}))
    assert not present(events(plain.files[1]))
    assert present(events(full.files[1]))


def test_with_flops_adds_a_column(quick):
    result = run(quick(max_steps=2, torch_profile=True, with_flops=True))
    assert "FLOPs" in (result.folder / "key_averages_rank0_of_1.txt").read_text()


def test_too_long_a_recording_is_refused_before_it_begins(quick):
    with pytest.raises(UserError, match="--profile-active"):
        run(quick(max_steps=2000, torch_profile=True, profile_wait=0, profile_active=1000))


def test_options_make_the_expected_trace_larger():
    schedule = ProfileSchedule(active=3)
    plain = profiling.expected_trace_megabytes(TrainConfig(torch_profile=True), schedule)
    full = profiling.expected_trace_megabytes(
        TrainConfig(torch_profile=True, record_shapes=True), schedule
    )
    assert full > plain == 3 * profiling.TRACE_MEGABYTES_PER_STEP["plain"]


def test_too_little_disk_space_is_refused_with_numbers(tmp_path, monkeypatch):
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(profiling.shutil, "disk_usage", lambda folder: usage(10**9, 10**9, 10**6))
    with pytest.raises(UserError, match="1 MB free"):
        profiling.check_trace_size(TrainConfig(torch_profile=True), ProfileSchedule(), tmp_path)


def test_incomplete_trace_is_not_passed_on(tmp_path):
    class CutOff:
        def export_chrome_trace(self, path):
            with open(path, "w") as target:
                target.write('{"traceEvents": [{"ph"')

    target = tmp_path / "trace.json.gz"
    with pytest.raises(UserError, match="incomplete"):
        profiling._write_trace(CutOff(), target)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_sigterm_inside_a_recording_still_writes_the_trace(warm, tmp_path):
    command = [
        warm,
        "-m",
        "tests.cifar_train.tiny_trainer",
        "--data",
        "synthetic",
        "--torch-profile",
    ]
    command += [
        "-ms",
        "500",
        "-bs",
        "64",
        "--profile-wait",
        "0",
        "--profile-active",
        "400",
        "--num-workers",
        "0",
    ]
    command += [
        "--precision",
        "float32",
        "--device",
        "cpu",
        "--run-dir",
        str(tmp_path / "run"),
        "--pathology",
    ]
    # With the slow loader a step lasts at least 0.3 s, and the whole recording two minutes: the
    # signal, which follows the first news of steps after five seconds, finds it open.
    command += ["slow-loader"]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in process.stdout:
        if re.search(r"step \d+ of", line):
            break
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 143, rest
    assert "stopped by SIGTERM" in rest
    assert events(tmp_path / "run" / "trace_rank0_of_1.json.gz")


@pytest.mark.parametrize("cycle", [1, 2])
def test_sigterm_while_a_cycle_is_written_loses_none(quick, monkeypatch, cycle):
    write = profiling._write_trace

    def cancelled(recorded, target):
        if f"cycle{cycle}" in target.name:
            signal.raise_signal(signal.SIGTERM)
        write(recorded, target)

    monkeypatch.setattr(profiling, "_write_trace", cancelled)
    # The second cycle ends with the run, while the hooks are left.
    result = run(
        quick(max_steps=4, torch_profile=True, profile_wait=0, profile_active=1, profile_repeat=2)
    )
    assert result.stop_reason == "SIGTERM"
    assert len(result.records) == 2 * cycle
    assert [path.name for path in sorted(result.folder.glob("trace_*"))] == [
        f"trace_rank0_of_1_cycle{number}.json.gz" for number in range(1, cycle + 1)
    ]


def test_roctx_ranges_are_pushed_in_order(quick, monkeypatch):
    import torch

    calls: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", calls.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
    run(quick(max_steps=1, roctx=True))
    # The first pair probes whether this build of torch can mark ranges at all.
    assert calls == ["probe", "pop", *(call for phase in PHASES for call in (phase, "pop"))]


def test_roctx_without_support_is_refused(quick, monkeypatch):
    import torch

    def missing(name):
        raise RuntimeError("NVTX functions not installed")

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", missing)
    with pytest.raises(UserError, match="ROCTX"):
        run(quick(max_steps=1, roctx=True))
