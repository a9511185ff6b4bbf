"""The trainer's configuration dataclass, command-line parser and list of known faults.

This module doesn't import torch, so `--help` and option checks are fast and safe on a login node.
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
"""Read latency per image for slow-loader, similar to the latency of a busy shared file system."""

SKEW_SECONDS = 0.05
"""Extra time in seconds that the last rank spends per step, for rank-skew. The value is arbitrary.
"""

TINY_BATCH = 4
"""Images per rank and step for tiny-batch."""


def tiny_batch(config: TrainConfig) -> TrainConfig:
    """Use far too few images per step.

    - Symptom: Throughput is low although the device seems busy.
    - Seen in: The kernel statistics show the usual number of launches per step, but each kernel
      takes only a few microseconds. The device also has launch-bound idle time.
    - Truth: The batch contains only 4 images, so every kernel is too small to fill the device. The
      fixed cost of each launch dominates.
    """
    return config.replace(batch_size=TINY_BATCH)


def no_warmup(config: TrainConfig) -> TrainConfig:
    """Start measuring and recording with the first step.

    - Symptom: The mean is slow, the spread is large, and the trace contains setup calls.
    - Seen in: The first step stands out in the list of step times. The first profiled step contains
      the setup calls.
    - Truth: The run has 0 warmup steps, and the profiler neither waits nor warms up.
    """
    return config.replace(warmup_steps=0)


def _no_workers(config: TrainConfig) -> TrainConfig:
    return config.replace(num_workers=0)


@dataclass(frozen=True)
class Fault:
    """A known fault, without the code that changes a model or a trainer.

    - settings: configuration values that the fault changes
    - model: function in `cifar_train.injected_faults` that changes the model
    - trainer: function in `cifar_train.injected_faults` that changes the finished trainer
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
"""All known faults by name. To add a fault, add an entry here and write its function."""


def apply_to_config(config: TrainConfig) -> TrainConfig:
    """Return the configuration after applying the settings of its fault."""
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
"""Example arguments for the help text, without the program name."""

MAX_NUMBER = 2**31 - 1
"""Largest value for any numeric option. No run has this many steps, and every library accepts it.
"""


def option(default: Any, help: str, **more: Any) -> Any:
    """Return a dataclass field with extra metadata for argparse.

    `more` can contain short, choices, metavar and minimum. The first option of a group also has
    group.
    """
    return field(default=default, metadata={"help": help} | more)


@dataclass(frozen=True)
class TrainConfig:
    """All options of the trainer. Raises UserError for invalid values.

    Batch sizes count images per rank. Step counts cover the optimizer steps of all epochs.
    """

    model: str = option(
        "resnet",
        "train this image classifier in its default configuration",
        choices=MODELS,
    )
    precision: str = option(
        "automixed",
        "set the arithmetic precision; automixed uses autocast",
        choices=PRECISIONS,
    )
    batch_size: int = option(
        256, "set the number of images per rank and step", short="-bs", minimum=1
    )
    max_epochs: int = option(1, "stop after this many epochs", minimum=1)
    max_steps: int = option(
        20, "stop after this many steps, or earlier if all epochs are done", short="-ms", minimum=1
    )
    warmup_steps: int | None = option(
        None, "report the first N steps separately (default: 5, or fewer in a short run)", minimum=0
    )
    seed: int = option(55, "set the random seed for weights, data order and transforms", minimum=0)

    data: str = option(
        "auto",
        "choose the dataset; auto uses CIFAR-100 if it is staged, otherwise synthetic images",
        choices=DATA_SOURCES,
        group="data",
    )
    data_path: Path = option(DATA_FOLDER, "read the dataset from this folder", short="-dp")
    download_only: bool = option(
        False, "download CIFAR-100 to the data path and exit; this doesn't need a GPU"
    )
    num_workers: int = option(
        2,
        "start this many data loader workers per rank; with 0, the training process loads data",
        minimum=0,
    )
    batched_transforms: bool = option(False, "transform whole batches instead of single images")

    device: str = option(
        "auto",
        "choose the device; auto uses a GPU if torch detects one",
        choices=DEVICES,
        group="speed",
    )
    compile: bool = option(
        False, "compile the model with torch.compile and report the compile time separately"
    )
    channels_last: bool = option(False, "keep images and weights in NHWC memory order")
    fused_optimizer: bool = option(False, "update the weights with one fused optimizer kernel")

    torch_profile: bool = option(False, "record a torch.profiler trace", group="profiling")
    profile_all_ranks: bool = option(False, "trace every rank instead of only rank 0")
    record_shapes: bool = option(False, "record the input shapes of every operator")
    roctx: bool = option(False, "mark the phases of each step with ROCTX ranges for AMD's tools")

    run_dir: Path | None = option(
        None, "write results to this folder (default: runs/cifar_train/DATE-TIME)", group="output"
    )
    inject_fault: str | None = option(
        None,
        f"inject a known fault to practice diagnosis: {', '.join(FAULTS)}",
        choices=FAULT_NAMES,
        metavar="NAME",
        group="faults",
    )

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _check_field(item, getattr(self, item.name))
        self.schedule_for()  # raises an error if the run is too short to record
        if self.inject_fault == "recompile" and not self.compile:
            raise UserError(
                "--inject-fault recompile needs --compile, because only a compiled model can be"
                " recompiled."
            )
        for name in ("profile_all_ranks", "record_shapes"):
            if getattr(self, name) and not self.torch_profile:
                raise UserError(
                    f"{flag(name)} needs --torch-profile. Without that option, nothing is recorded."
                )

    def schedule_for(self) -> ProfileSchedule | None:
        """Return the profiler's schedule for max_steps, or None without --torch-profile.

        Raises UserError if the run is too short to record.
        """
        if not self.torch_profile:
            return None
        if self.inject_fault == "no-warmup":
            return ProfileSchedule(0, 0, min(ProfileSchedule.active, self.max_steps))
        return ProfileSchedule.fit(self.max_steps)

    def warmup_for(self, steps: int) -> int:
        """Return the number of warmup steps in a run of `steps` steps.

        Warmup steps set up libraries, search for kernels and load the first batches. The default is
        five because AMD's published runs settle after step 5. At most a third of the run counts as
        warmup.
        """
        return min(5, steps // 3) if self.warmup_steps is None else min(self.warmup_steps, steps)

    def replace(self, **changes: Any) -> TrainConfig:
        """Return a validated copy with some values changed."""
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the options as values that JSON supports. Paths become strings."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))

    def write(self, folder: Path) -> Path:
        """Write the final configuration to `folder`/config.json and return the file's path."""
        target = folder / "config.json"
        with whole_file(target) as partial:
            partial.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        return target


def precision_label(precision: str, arithmetic: str) -> str:
    """Return the precision label that reports print next to a rate.

    The label for automixed includes its arithmetic type, as in `automixed (float16)`.
    """
    return f"{precision} ({arithmetic})" if precision == "automixed" else precision


def flag(name: str) -> str:
    """Return the command-line option for a field, such as --max-steps for max_steps."""
    return "--" + name.replace("_", "-")


def _check_field(item: dataclasses.Field, value: Any) -> None:
    minimum = item.metadata.get("minimum")
    if minimum is not None and value is not None and not minimum <= value <= MAX_NUMBER:
        raise UserError(
            f"{flag(item.name)} must be an integer from {minimum} to {MAX_NUMBER}, but you passed"
            f" {shortened(str(value))}"
        )


class _Help(argparse.HelpFormatter):
    """Help formatter that never breaks lines at hyphens, because the names of choices contain
    hyphens.
    """

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser for TrainConfig, with one option per field."""
    parser = Parser(
        prog=program("cifar_train", "cifar-train"),
        description="Train a small image classifier on CIFAR-100 and profile it.",
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
    """Return the path of a folder, as an option type for argparse.

    The function rejects an empty string, because an unset variable would otherwise select the
    current folder.
    """
    if not text:
        raise argparse.ArgumentTypeError(
            "the folder name is empty. To use the current folder, pass ."
        )
    return Path(text)


def parse(arguments: Sequence[str] | None = None) -> TrainConfig:
    """Return the configuration for a command line. Raises UserError for an invalid command line.

    If a shell requests completions (https://kislyuk.github.io/argcomplete/), print them and exit.
    """
    parser = build_parser()
    complete(parser)
    return TrainConfig(**vars(parser.parse_args(arguments)))
