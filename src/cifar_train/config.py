"""The trainer's one configuration: a frozen dataclass, the command line made from it, and the zoo
of pathologies.

Nothing here imports torch, so that `--help` and every check of the options are
quick and safe on a login node.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cifar_train.schedule import ProfileSchedule
from tidyprof.atomic_write import whole_file
from tidyprof.command_line import Parser, add_version, complete, program
from tidyprof.errors import UserError, shortened

SECONDS_PER_SLOW_IMAGE = 0.005
"""slow-loader: read latency of one image; chosen to be like that of a busy shared file system."""

SKEW_SECONDS = 0.05
"""rank-skew: how much longer the last rank prepares each step; a choice."""

TINY_BATCH = 4
"""tiny-batch: images per rank and step."""


def tiny_batch(config: TrainConfig) -> TrainConfig:
    """Far too few images in a step.

    Symptom: low images/s although the device seems busy. Seen in: kernel statistics
    (as many launches per step as ever, each a few microseconds long) and launch-bound
    idle time. Truth: the batch holds 4 images, so every kernel is too small to fill
    the device and the fixed cost of a launch dominates.
    """
    return config.replace(batch_size=TINY_BATCH)


def no_warmup(config: TrainConfig) -> TrainConfig:
    """Measures and records from the very first step.

    Symptom: a slow mean, a huge spread, set-up calls in the trace. Seen in: step times
    in order (the first stands out) and the first profiled step. Truth: warm-up steps
    are 0 and the profiler neither waits nor warms up.
    """
    return config.replace(warmup_steps=0)


def _no_workers(config: TrainConfig) -> TrainConfig:
    """slow-loader: load in the training process."""
    return config.replace(num_workers=0)


@dataclass(frozen=True)
class Fault:
    """A known fault: everything about it except the code that changes a model or a trainer.

    settings  -- what it changes in the configuration
    model     -- name of the function in `cifar_train.injected_faults` that changes the model
    trainer   -- name of the function there that changes the finished trainer
    """

    name: str
    settings: Callable[[TrainConfig], TrainConfig] | None = None
    model: str = ""
    trainer: str = ""


FAULTS = {
    one.name: one
    for one in (
        Fault("slow-loader", _no_workers, trainer="slow_loader"),
        Fault("sync-every-step", trainer="sync_every_step"),
        Fault("tiny-batch", tiny_batch),
        Fault("many-small-kernels", model="many_small_kernels"),
        Fault("unpinned-copies", trainer="unpinned_copies"),
        Fault("wrong-layout", model="wrong_layout"),
        Fault("recompile", model="recompile", trainer="relabel_every_step"),
        Fault("rank-skew", trainer="rank_skew"),
        Fault("no-warmup", no_warmup),
        Fault("memory-growth", trainer="memory_growth"),
        Fault("broken-grad", model="broken_grad"),
    )
}
"""Every pathology by its name. To add one, add its line here, and its function."""


def apply_to_config(config: TrainConfig) -> TrainConfig:
    """The configuration with its own pathology's settings in place."""
    settings = FAULTS[config.inject_fault].settings if config.inject_fault else None
    return settings(config) if settings else config


MODELS = ("resnet", "swinv2", "vit")
PRECISIONS = ("float32", "automixed", "bfloat16")
DATA_SOURCES = ("auto", "cifar100", "synthetic")
DEVICES = ("auto", "cpu", "cuda")
DATA_FOLDER = Path("data")
FAULT_NAMES = tuple(FAULTS)

EXAMPLES = (
    "--max-steps 5 --batch-size 8",
    "--max-steps 20 --torch-profile --run-dir runs/mine",
    "--download-only",
)
"""Examples for the help: what may follow the program's name."""

MAX_NUMBER = 2**31 - 1
"""Largest number for any option: no run has so many steps, and every library takes it."""


def option(default: Any, help: str, **more: Any) -> Any:
    """Return a dataclass field that also carries what argparse needs to know.

    more -- short, choices, metavar, minimum, and group where the options of a group start.
    """
    return field(default=default, metadata={"help": help} | more)


@dataclass(frozen=True)
class TrainConfig:
    """Every option of the trainer. Raises UserError for impossible values.

    Batch sizes count images per rank; steps count optimizer steps over all epochs.
    """

    model: str = option(
        "resnet", "image classifier to train, from its default configuration", choices=MODELS
    )
    precision: str = option("automixed", "arithmetic; automixed is autocast", choices=PRECISIONS)
    batch_size: int = option(256, "images per rank and step", short="-bs", minimum=1)
    max_epochs: int = option(1, "stop after this many passes over the data", minimum=1)
    max_steps: int = option(
        20, "stop after this many steps, whichever limit comes first", short="-ms", minimum=1
    )
    warmup_steps: int | None = option(
        None, "first steps reported apart; default 5, fewer in a short run", minimum=0
    )
    seed: int = option(55, "seed of weights, data order and transforms", minimum=0)

    data: str = option(
        "auto",
        "auto takes CIFAR-100 where it is staged, else synthetic images",
        choices=DATA_SOURCES,
        group="data",
    )
    data_path: Path = option(DATA_FOLDER, "folder of the data set", short="-dp")
    download_only: bool = option(False, "fetch CIFAR-100 into the data path and stop; needs no GPU")
    num_workers: int = option(
        2,
        "loader processes per rank; 0 loads in the training process",
        minimum=0,
    )
    batched_transforms: bool = option(False, "transform whole batches instead of single images")

    device: str = option(
        "auto", "auto takes a GPU where torch sees one", choices=DEVICES, group="speed"
    )
    compile: bool = option(False, "torch.compile the model; compilation time is reported apart")
    channels_last: bool = option(False, "keep images and weights in NHWC memory order")
    fused_optimizer: bool = option(False, "one fused kernel for the optimizer's update")

    torch_profile: bool = option(False, "record a torch.profiler trace", group="profiling")
    profile_all_ranks: bool = option(False, "a trace of every rank, not of rank 0 alone")
    record_shapes: bool = option(False, "store the shapes of every operator's inputs")
    roctx: bool = option(False, "mark the phases of a step with ROCTX ranges for AMD's tools")

    run_dir: Path | None = option(
        None, "folder for results; default runs/cifar_train/DATE-TIME", group="output"
    )
    inject_fault: str | None = option(
        None,
        f"add a known fault, to practice finding it: {', '.join(FAULTS)}",
        choices=FAULT_NAMES,
        metavar="NAME",
        group="faults",
    )

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _check_field(item, getattr(self, item.name))
        self.schedule_for()  # refuses a run that is too short to record
        if self.inject_fault == "recompile" and not self.compile:
            raise UserError(
                "--inject-fault recompile needs --compile: without a compiler nothing is compiled"
                " again"
            )
        for name in ("profile_all_ranks", "record_shapes"):
            if getattr(self, name) and not self.torch_profile:
                raise UserError(
                    f"{flag(name)} needs --torch-profile: without it nothing is recorded"
                )

    def schedule_for(self) -> ProfileSchedule | None:
        """Return the profiler's schedule, fitted to max_steps; None without --torch-profile.

        Raises UserError for a run that is too short to record.
        """
        if not self.torch_profile:
            return None
        if self.inject_fault == "no-warmup":
            return ProfileSchedule(0, 0, min(ProfileSchedule.active, self.max_steps))
        return ProfileSchedule.fit(self.max_steps)

    def warmup_for(self, steps: int) -> int:
        """How many of the first steps in a run of `steps` are warm-up: for the set-up of libraries,
        the search for kernels and the first batches.

        The default is five, since AMD's published runs settle after step 5, but at most a third of
        the run.
        """
        return min(5, steps // 3) if self.warmup_steps is None else min(self.warmup_steps, steps)

    def replace(self, **changes: Any) -> TrainConfig:
        """A copy with some values changed, validated again."""
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; paths become strings."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))

    def write(self, folder: Path) -> Path:
        """Write the resolved configuration to `folder`/config.json and return its path."""
        target = folder / "config.json"
        with whole_file(target) as partial:
            partial.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        return target


def precision_label(precision: str, arithmetic: str) -> str:
    """The precision as it stands beside a rate: automixed is followed by its arithmetic, as in
    `automixed (float16)`.
    """
    return f"{precision} ({arithmetic})" if precision == "automixed" else precision


def flag(name: str) -> str:
    """The command-line spelling of a field: max_steps becomes --max-steps."""
    return "--" + name.replace("_", "-")


def _check_field(item: dataclasses.Field, value: Any) -> None:
    minimum = item.metadata.get("minimum")
    if minimum is not None and value is not None and not minimum <= value <= MAX_NUMBER:
        raise UserError(
            f"{flag(item.name)} must be a whole number from {minimum} to {MAX_NUMBER}, not"
            f" {shortened(str(value))}"
        )


class _Help(argparse.HelpFormatter):
    """Breaks lines only between words, since names of choices have hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def build_parser() -> argparse.ArgumentParser:
    """The command line of TrainConfig: one option per field, in groups, and examples."""
    parser = Parser(
        prog=program("cifar_train", "cifar-train"),
        description="Train a small image classifier on CIFAR-100, made to be profiled.",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.examples = EXAMPLES
    add_version(parser, "rocm-profiling-course")
    group = parser.add_argument_group("training")
    for item in dataclasses.fields(TrainConfig):
        if "group" in item.metadata:
            group = parser.add_argument_group(item.metadata["group"])
        _add_option(group, item)
    return parser


def _add_option(group: argparse._ArgumentGroup, item: dataclasses.Field) -> None:
    meta = item.metadata
    names = [flag(item.name)] + ([meta["short"]] if "short" in meta else [])
    common = {"dest": item.name, "default": item.default}
    if item.type == "bool":
        group.add_argument(*names, action="store_true", help=meta["help"], **common)
        return
    default = "" if item.default is None else " (default: %(default)s)"
    kind = {"int": int, "Path": _path}.get(item.type.removesuffix(" | None"), str)
    group.add_argument(
        *names,
        type=kind,
        choices=meta.get("choices"),
        metavar=meta.get("metavar", {int: "N", _path: "PATH"}.get(kind)),
        help=meta["help"] + default,
        **common,
    )


def _path(text: str) -> Path:
    """argparse's type for folders. It refuses an empty word, which comes from a variable that is
    not set, and would mean the working folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("a folder's name is missing; the working folder is .")
    return Path(text)


def parse(arguments: Sequence[str] | None = None) -> TrainConfig:
    """The configuration that a command line asks for. Raises UserError for a wrong command line.

    If a shell asks what can be typed next (https://kislyuk.github.io/argcomplete/), it gets its
    answer, and the program ends.
    """
    parser = build_parser()
    complete(parser)
    return TrainConfig(**vars(parser.parse_args(arguments)))
