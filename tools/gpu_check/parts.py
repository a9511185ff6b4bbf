"""The parts of the check. Each part has commands and a check of their results.

To add a part, add a function and its line.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tidyprof
from proflab.lessons import lessons
from proflab.training import training_run

MODELS, PRECISIONS = ("resnet", "swinv2", "vit"), ("float32", "automixed", "bfloat16")
STEPS, BATCH = 12, 64
DEVICE = "cuda"  # this is also ROCm's name
PYTHON = sys.executable
TRACED = ("--torch-profile", "--record-shapes", "--roctx")

Commands = dict[str, list[str]]
"""Command lines by the name of the log that they write."""


@dataclass(frozen=True)
class Gpus:
    """The GPUs that torch detects.

    `maker` is AMD or NVIDIA, and `name` is the first device's name. `build` is torch's version, and
    `platform` is the HIP or CUDA version that torch was built with.
    """

    maker: str
    name: str
    count: int
    build: str
    platform: str = ""


class NotHereError(Exception):
    """Error for a part that can't run on this machine. Its text contains the reason."""


class DiffersError(Exception):
    """Error for a part whose result isn't the expected one. Its text contains both."""


@dataclass(frozen=True)
class Part:
    """One part of the check.

    what     -- one line for the report
    minutes  -- longest time for one of its commands
    commands -- receives the GPUs and the part's folder, and returns the commands to run; raises
                NotHereError
    check    -- receives the same after all commands have exited with 0, and returns one line on the
                result; raises DiffersError
    """

    name: str
    what: str
    minutes: float
    commands: Callable[[Gpus, Path], Commands]
    check: Callable[[Gpus, Path], str]


def train(folder: Path, name: str, *options: str) -> list[str]:
    """Return the command of a short training run on the GPU, with its results in `folder/name`."""
    run = ["--device", DEVICE, "--data", "synthetic", "--run-dir", str(folder / name)]
    return [
        "-m",
        "cifar_train",
        "--batch-size",
        str(BATCH),
        "--max-steps",
        str(STEPS),
        *run,
        *options,
    ]


def _rates(gpus: Gpus, folder: Path) -> str:
    """Return the images per second of all runs.

    Raises DiffersError for a run that was cut short, ran on another device, or diverged. The
    trainer makes each run's folder. A CourseError for a folder without results is passed on.
    """
    rates = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        run = training_run(path)
        losses = run.steps["loss"]
        if run.device != gpus.name or len(run.steps) < STEPS or not losses.map(math.isfinite).all():
            found = (
                f"{len(run.steps)} steps of {STEPS} on {run.device}, the last losses"
                f" {losses.tail(3).tolist()}"
            )
            raise DiffersError(f"{path.name}: {found}")
        rates.append(f"{path.name} {run.summary['images_per_second']:,.0f}")
    return f"images/s: {', '.join(rates)}"


def _doctor(gpus: Gpus, folder: Path) -> Commands:
    return {"doctor": [PYTHON, "-m", "proflab", "doctor", "--json"]}


def _doctor_said(gpus: Gpus, folder: Path) -> str:
    report = json.loads((folder / "doctor.log").read_text(encoding="utf-8"))
    if fixes := [row["check"] for row in report["findings"] if row["status"] == "fix"]:
        raise DiffersError(f"the doctor found problems to fix: {', '.join(fixes)}")
    return f"{gpus.count} x {gpus.name}, torch {gpus.build}, nothing to fix"


def _trainings(gpus: Gpus, folder: Path) -> Commands:
    commands = {}
    for model, precision in itertools.product(MODELS, PRECISIONS):
        name = f"{model}-{precision}"
        commands[name] = [PYTHON, *train(folder, name, "--model", model, "--precision", precision)]
    return commands


def _compiled(gpus: Gpus, folder: Path) -> Commands:
    return {
        model: [PYTHON, *train(folder, model, "--model", model, "--compile")]
        for model in ("resnet", "vit")
    }


def _ranks(gpus: Gpus, folder: Path) -> Commands:
    launch = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return {
        f"{size}-ranks": [*launch, str(size), *train(folder, f"{size}-ranks")]
        for size in sorted({1, gpus.count})
    }


def _traces(gpus: Gpus, folder: Path) -> Commands:
    return {model: [PYTHON, *train(folder, model, "--model", model, *TRACED)] for model in MODELS}


def _traces_read(gpus: Gpus, folder: Path) -> str:
    said = []
    for path in sorted(folder.glob("*/trace_rank0*.json.gz")):
        calls, total_ms, lost = _kernels_of_a_step(path)
        if lost:
            raise DiffersError(f"{path.parent.name}: {lost} events on the GPU without a launch")
        said.append(f"{path.parent.name} {calls:,.0f} kernels per step, {total_ms:.2f} ms")
    if len(said) < len(MODELS):
        raise DiffersError(f"{len(said)} traces of {len(MODELS)}")
    return "; ".join(said)


def _need_amd(gpus: Gpus) -> None:
    if gpus.maker != "AMD":
        raise NotHereError(f"AMD's tools need an AMD GPU, but this is an {gpus.maker} GPU")


def _lessons(gpus: Gpus, folder: Path) -> Commands:
    _need_amd(gpus)
    real = {tool for one in lessons().values() for tool in one.tools if shutil.which(tool)}
    if not real:
        raise NotHereError("PATH doesn't contain any of AMD's tools; load the ROCm module")
    notebooks = {
        number: Path("notebooks", f"{one.folder.name}.ipynb")
        for number, one in lessons().items()
        if real & set(one.tools)
    }
    results = f"PROFLAB_RUNS={(folder / 'runs').absolute()}"
    command = ["env", results, PYTHON, "-m", "jupyter", "execute", "--timeout=600"]
    return {number: [*command, str(path)] for number, path in notebooks.items()}


def _lessons_said(gpus: Gpus, folder: Path) -> str:
    logs = sorted(path.stem for path in folder.glob("*.log"))
    return f"lessons {', '.join(logs)} as shipped"


def _jobs(gpus: Gpus, folder: Path) -> Commands:
    _need_amd(gpus)
    if not shutil.which("sbatch") or "SLURM_JOB_ID" in os.environ:
        raise NotHereError(
            "not on a Slurm login node, where scripts/slurm/record_all.sh runs this part"
        )
    return {"jobs": ["scripts/slurm/submit_all.sh", "--wait"]}


def _kernels_of_a_step(path: Path) -> tuple[float, float, int]:
    """Return the kernels per step of a trace, their time in ms per step, and the events without a
    launch.

    Events without a launch are counted over the whole trace. Raises DiffersError for a trace
    without steps or without kernels that take time.
    """
    profile = tidyprof.read(path)
    kernels, steps = tidyprof.kernels(profile), tidyprof.steps(profile)
    total_ns = kernels["total_ns"].sum()
    if not total_ns or steps.empty:
        raise DiffersError(
            f"{path.parent.name}: {len(kernels)} kernels and {len(steps)} steps in the trace"
        )
    lost = int(profile.device_events["launch_ns"].isna().sum())
    return kernels["calls"].sum() / len(steps), total_ns / len(steps) / 1e6, lost


PARTS = (
    Part("setup", "set-up with the right build of torch", 2, _doctor, _doctor_said),
    Part("training", "three models in three precisions", 3, _trainings, _rates),
    Part("traces", "torch.profiler with every option, three models", 4, _traces, _traces_read),
    Part("ranks", "one GPU and all, by RCCL or NCCL", 3, _ranks, _rates),
    Part("compile", "torch.compile", 6, _compiled, _rates),
    Part("lessons", "AMD's tools by the cells of the lessons", 10, _lessons, _lessons_said),
    Part(
        "jobs",
        "AMD's tools by the job scripts",
        20,
        _jobs,
        lambda gpus, folder: "every job ended with 0",
    ),
)
"""The parts, the most important first in case the time runs out."""
