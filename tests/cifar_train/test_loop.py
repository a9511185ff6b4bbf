"""The loop: what it computes, what it counts, and that watching it changes nothing."""

from __future__ import annotations

import inspect
import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from cifar_train import clock, loop
from cifar_train.clock import StepClock
from cifar_train.config import MOST_SEED
from cifar_train.console import Progress, say
from cifar_train.hooks import Hook, Hooks, PhaseRanges
from cifar_train.launch.ranks import Launch
from cifar_train.loop import train
from cifar_train.train import run, set_up
from tidyprof.errors import UserError
from tidyprof.standard_streams import tell


class Losses(Hook):
    """Collects the losses of a run as exact numbers."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def step_end(self, outcome):
        self.values.append(outcome.loss.item())


def trainer_for(config):
    import torch

    return set_up(config, Launch(), torch.device("cpu"))


def bare_losses(trainer) -> list[float]:
    """The same training written out by hand, in the plainest way."""
    import torch

    losses = []
    trainer.loaders.sampler.set_epoch(0)
    for step, (images, labels) in enumerate(trainer.loaders.train):
        if step == trainer.planned_steps:
            break
        loss = torch.nn.functional.cross_entropy(trainer.model(images).logits, labels)
        loss.backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("model", ["resnet", "vit", "swinv2"])
def test_loop_equals_the_same_training_written_by_hand(quick, model):
    config = quick(model=model, max_steps=4)
    seen = Losses()
    train(trainer_for(config), seen)
    assert seen.values == bare_losses(trainer_for(config))


def test_the_largest_seed_fits_wherever_numbers_are_drawn(quick):
    result = run(quick(seed=MOST_SEED, batched_transforms=True, max_steps=1))
    assert len(result.records) == 1


def test_runs_that_begin_in_the_same_second_take_different_folders(quick, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20260102-030405")
    folders = [run(quick(run_dir=None, max_steps=1)).folder for _ in range(3)]
    assert [folder.name for folder in folders] == [
        f"20260102-030405{number}" for number in ("", "-2", "-3")
    ]
    assert all((folder / "config.json").is_file() for folder in folders)


class Terminal(io.StringIO):
    """What is written to it counts as shown on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("put", "stream", "head"), [(tell, "stderr", ""), (say, "stdout", "cifar_train: ")]
)
def test_a_line_on_a_terminal_is_broken_between_words(put, stream, head, monkeypatch, capsys):
    message = "--profile-wait 9 needs more than the 5 steps that --max-steps allows"
    put(message)
    assert f"{head}{message}\n" in capsys.readouterr()
    monkeypatch.setattr(sys, stream, Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    put(message)
    shown = getattr(sys, stream).getvalue().splitlines()
    assert max(map(len, shown)) <= 40
    assert " ".join(map(str.strip, shown)) == f"{head}{message}"
    monkeypatch.setattr(sys, stream, None)  # closed when Python started
    put(message)


def test_news_fit_a_page(capsys):
    message = " ".join(["CIFAR-100 is not staged in data"] * 5)
    say(message)
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 100
    assert " ".join(map(str.strip, shown)) == f"cifar_train: {message}"


def test_the_bar_on_a_terminal_says_how_long_the_rest_takes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Progress(planned_steps=4) as progress:
        for step in range(2):
            progress.step_end(SimpleNamespace(step=step))
    assert re.search(r"2/4 steps, \d\d:\d\d left", terminal.getvalue())


@pytest.mark.parametrize(("batch_size", "is_said"), [(64, True), (8, False)])
def test_who_waits_for_a_processor_is_told_why(quick, batch_size, is_said):
    notes = run(quick(max_steps=1, batch_size=batch_size)).notes
    assert any("can take a minute on a processor" in note for note in notes) == is_said


def test_null_hook_and_no_hook_give_bit_identical_weights(quick):
    import torch

    trainers = [trainer_for(quick(max_steps=4)) for _ in range(3)]
    for trainer, hook in zip(trainers, (None, Hook(), Hooks([])), strict=True):
        train(trainer, hook)
    reference = trainers[0].raw_model.state_dict()
    for trainer in trainers[1:]:
        for name, value in trainer.raw_model.state_dict().items():
            assert torch.equal(value, reference[name]), name


def test_profiler_and_ranges_do_not_change_the_losses(quick, tmp_path):
    plain = run(quick(max_steps=5, run_dir=tmp_path / "plain"))
    watched = run(
        quick(max_steps=5, torch_profile=True, record_shapes=True, run_dir=tmp_path / "watched")
    )
    assert [r.loss for r in plain.records] == [r.loss for r in watched.records]


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_max_steps_means_exactly_that(quick, steps):
    assert len(run(quick(max_steps=steps)).records) == steps


def test_epochs_reshuffle_and_the_short_last_batch_is_counted_as_it_is(quick, monkeypatch):
    from dataclasses import replace

    trainer = trainer_for(quick(max_steps=7, max_epochs=3, batch_size=8))
    loaders = trainer.loaders
    epochs: list[int] = []
    monkeypatch.setattr(loaders.sampler, "set_epoch", epochs.append)
    three_batches = [batch for batch, _ in zip(loaders.train, range(3), strict=False)]
    three_batches[-1] = tuple(part[:5] for part in three_batches[-1])
    trainer.loaders = replace(loaders, train=three_batches, steps_per_epoch=3)
    watch = StepClock(trainer.device, 0)
    assert train(trainer, watch) == 7
    assert epochs == [0, 1, 2]
    assert [outcome.epoch for outcome in watch.outcomes] == [0, 0, 0, 1, 1, 1, 2]
    assert [outcome.images for outcome in watch.outcomes] == [8, 8, 5, 8, 8, 5, 8]


def test_loop_is_short_and_has_no_read_back():
    source = inspect.getsource(loop.train)
    assert len(source.splitlines()) < 60
    assert ".item()" not in source
    assert "synchronize" not in source


def test_hooks_enclose_one_another(quick):
    calls: list[str] = []

    class Named(Hook):
        def __init__(self, name):
            self.name = name

        def step_begin(self, step):
            calls.append(f"{self.name} begin")

        def step_end(self, outcome):
            calls.append(f"{self.name} end")

    train(trainer_for(quick(max_steps=1)), Hooks([Named("outer"), Named("inner")]))
    assert calls == ["outer begin", "inner begin", "inner end", "outer end"]


def test_phases_follow_one_another_without_gaps(quick):
    calls: list[str] = []
    train(trainer_for(quick(max_steps=2)), PhaseRanges(calls.append, lambda: calls.append("end")))
    one_step = [
        "data",
        "end",
        "forward",
        "end",
        "loss",
        "end",
        "backward",
        "end",
        "optimizer",
        "end",
    ]
    assert calls == one_step * 2


def test_a_failing_hook_leaves_the_others_in_order(quick):
    left: list[str] = []

    class Leaves(Hook):
        def __exit__(self, *_):
            left.append("left")

    class Fails(Hook):
        def __enter__(self):
            raise OSError("no")

    with pytest.raises(OSError, match="no"), Hooks([Leaves(), Fails()]):
        pass
    assert left == ["left"]


class FakeGpu:
    """Counts events and synchronisations as a GPU's runtime would see them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.time_ms = 0.0

    def event(self, enable_timing):
        assert enable_timing
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.gpu.log.append("record")
        self.gpu.time_ms += 2.5
        self.at = self.gpu.time_ms

    def elapsed_time(self, end):
        assert self.gpu.log[-1] == "synchronize", (
            "events may be read only after the device has finished"
        )
        return end.at - self.at


def test_gpu_clock_waits_only_at_both_ends_of_the_window(quick, monkeypatch):
    """AMD's example read its clock before the device had finished; here no interval does."""
    import torch

    gpu = FakeGpu()
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: gpu.log.append("synchronize"))
    trainer = trainer_for(quick(max_steps=4))
    watch = StepClock(torch.device("cuda", 0), warmup_steps=1)
    with watch:
        train(trainer, watch)
    records = ["record", "record"]
    assert gpu.log == [*records, "synchronize", *records, *records, *records, "synchronize"]
    assert watch.durations_ns == [2_500_000] * 4
    assert watch.window_ns() > 0


def test_cpu_needs_no_synchronisation(monkeypatch):
    import torch

    monkeypatch.setattr(
        torch.cuda, "synchronize", lambda device: pytest.fail("a CPU run touched the GPU")
    )
    clock.synchronize(torch.device("cpu"))


def test_metrics_file_tells_the_whole_run(quick):
    result = run(quick(max_steps=6, warmup_steps=2))
    records = [json.loads(line) for line in result.files[0].read_text().splitlines()]
    assert [record["record"] for record in records] == ["run", *["step"] * 6, "summary"]
    head, steps, summary = records[0], records[1:-1], records[-1]
    assert head["config"]["batch_size"] == 4
    assert head["versions"]["torch"]
    assert [step["part"] for step in steps] == ["warmup"] * 2 + ["steady"] * 4
    durations = sorted(step["duration_ns"] for step in steps[2:])
    assert summary["median_step_ns"] == round((durations[1] + durations[2]) / 2)
    assert summary["images_per_second"] == pytest.approx(4 * 4 / sum(durations) * 1e9)
    # The window holds the steps and what lies between them.
    assert summary["window_ns"] >= sum(durations)
    assert json.loads((result.folder / "config.json").read_text())["max_steps"] == 6


def test_one_image_is_refused_by_a_model_that_normalises_over_the_batch(quick):
    with pytest.raises(
        UserError, match=r"^--batch-size 1 leaves resnet.*--batch-size 2, or --model vit$"
    ):
        run(quick(model="resnet", batch_size=1))
    run(quick(model="vit", batch_size=1, max_steps=1))
