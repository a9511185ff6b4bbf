"""Playing the workload behind `--`: understand it, say that it is modelled, simulate it, print the trainer's lines.

Files of a writer are put where the real tool would have put them, under names with placeholders such as
`rank%rank%_%pid%`, as ROCprofiler-SDK and rocprof-sys expand them. Source: github.com/ROCm/rocm-systems,
projects/rocprofiler-sdk, source/lib/output and source/docs/how-to/using-rocprofv3.rst (ROCm 7).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from cifar_train.config import apply_to_config, precision_label
from cifar_train.errors import UserError
from cifar_train.whole_files import whole_file
from gpumodel.command import Command, read_command
from gpumodel.workload import MatrixProduct, Sampling

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run


DEFAULT_DEVICE = "MI300X"


@dataclass(frozen=True)
class Played:
    """A played workload and where it was started.

    run -- of all ranks; command -- what was understood; environment -- of this process.
    """

    run: Run
    command: Command
    environment: Mapping[str, str]

    @property
    def ranks(self) -> tuple[RankRun, ...]:
        """Those whose files this process has to write."""
        return tuple(self.run.ranks[rank] for rank in self.command.ranks)

    def process(self, rank: RankRun) -> Process:
        """What placeholders in file names mean for a rank."""
        environment = self.command.environment_of(rank.rank, self.environment)
        return Process(self.run.hostname, rank.process_id, self.command.program, environment)


def device_name(environment: Mapping[str, str] | None = None) -> str:
    """The modelled device: PROFLAB_DEVICE, else the MI300X."""
    return (os.environ if environment is None else environment).get("PROFLAB_DEVICE") or DEFAULT_DEVICE


def knobs(environment: Mapping[str, str]) -> dict[str, Any]:
    """The model's knobs from PROFLAB_DEVICE and PROFLAB_SEED. Raises UserError."""
    from gpumodel.devices import device

    seed = environment.get("PROFLAB_SEED") or "0"
    if not seed.isdecimal():
        raise UserError(f"PROFLAB_SEED must be a whole number, not {seed!r}")
    return {"device": device(device_name(environment)).name, "seed": int(seed)}


def understand(words: Sequence[str], environment: Mapping[str, str], **more: Any) -> Command:
    """The workload of a command line, with the knobs of `environment`; `more` are profiler and stacks."""
    return read_command(words, environment, **knobs(environment), **more)


def play(
    tool: str, words: Sequence[str], *, profiler: str = "none", stacks: Sampling | Literal[False] = False
) -> Played:
    """Play the workload that `words` start, under the eyes of `profiler`; prints one line about it on stderr.

    The trainer's own lines go to stdout. Raises UserError for another workload.
    """
    environment = dict(os.environ)
    command = understand(words, environment, profiler=profiler, stacks=stacks)
    from gpumodel.simulation import simulate

    run = simulate(command.workload)
    announce(tool, f"modelled {run.device.name}{_nodes(command)}, {run.error or 'error not known'}")
    if 0 in command.ranks:
        print("\n".join(trainer_lines(run)))
    return Played(run, command, environment)


def announce(tool: str, what: str) -> None:
    """The one line that every stand-in prints before anything else."""
    print(f"{tool}: stand-in, nothing was measured: {what}", file=sys.stderr, flush=True)


def _nodes(command: Command) -> str:
    return f", {command.nodes} nodes played as one" if command.nodes > 1 else ""


MARKER = "modelled.json"


def deliver(
    format_name: str,
    run: Run,
    rank: RankRun,
    target: Path,
    **options: Any,
) -> list[Path]:
    """Write a rank's files in ROCprofiler-SDK's naming, `<target>_<suffix>`, and return them.

    target -- folder and first part of the names; options -- of the writer. A file of that name is replaced, as the
    tools do. Beside the files lies the writer's note that they are modelled. Raises UserError where the folder
    cannot be written.
    """
    from gpumodel import writers

    with tempfile.TemporaryDirectory() as scratch:
        written = writers.write(format_name, run, Path(scratch), rank=rank.rank, **options)
        return [place(path, target.parent / _name(path.name, rank, target.name)) for path in written]


def _name(name: str, rank: RankRun, prefix: str) -> str:
    """The writers' default names begin with the number of the process; a marker's need not."""
    own = f"{rank.process_id}_"
    return f"{prefix}_{name.removeprefix(own)}" if name.startswith(own) else name


def place(source: Path, target: Path) -> Path:
    """Move a file, replacing what is there. Raises UserError where that cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            shutil.move(source, partial)
        return target
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); give another output folder") from error


RANK_VARIABLES = (
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "MPI_RANKID",
    "MPI_LOCALRANKID",
    "MPI_RANK",
)
"""Where %rank% is looked up, in this order. torchrun's RANK is not among them."""

SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_NRANKS", "MPI_LOCALNRANKS", "MPI_SIZE")
"""Where %size% is looked up, in this order (format_path.cpp: the last one in its list wins): 1 under plain srun."""

TIME_FORMAT = "%F_%H.%M"

_LONG_NAMES = {"h": "hostname", "p": "pid", "r": "rank", "s": "size", "j": "job"}
_PLACEHOLDER = re.compile(r"%env\{([A-Z0-9_]+)\}%|\$ENV\{([A-Z0-9_]+)\}|%arg(\d+)%|%([a-z_]+)%")


@dataclass(frozen=True)
class Process:
    """What the placeholders of one process stand for.

    command     -- the program's words; environment -- its variables; launch_time -- seconds since 1970.
    """

    hostname: str
    pid: int
    command: Sequence[str]
    environment: Mapping[str, str]
    launch_time: float = field(default_factory=time.time)

    @property
    def tag(self) -> str:
        """The program's base name."""
        return PurePath(self.command[0]).name


def expand(text: str, process: Process) -> str:
    """`text` with its placeholders replaced; what is none stays as it is."""
    values = _values(process)

    def replace(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable:
            # Blanks and slashes would make other folders of the name.
            return re.sub(r"[ \t/]", "_", process.environment.get(variable, ""))
        if match[3]:
            place = int(match[3])
            return process.command[place] if place < len(process.command) else match[0]
        name = _LONG_NAMES.get(match[4], match[4])
        return values.get(name, match[0])

    return _PLACEHOLDER.sub(replace, text)


def _values(process: Process) -> dict[str, str]:
    environment = process.environment
    rank = _first(environment, RANK_VARIABLES)
    arguments = "_".join(word.strip("-") for word in process.command[1:]).replace("/", "_")
    moment = time.localtime(process.launch_time)
    launch = time.strftime(environment.get("ROCPROF_TIME_FORMAT", TIME_FORMAT), moment)
    return {
        "hostname": process.hostname,
        "pid": str(process.pid),
        "ppid": str(os.getppid()),
        "cwd": os.getcwd(),
        "rank": rank or "0",
        "size": _first(environment, SIZE_VARIABLES) or "1",
        "nid": rank or str(process.pid),
        "job": environment.get("SLURM_JOB_ID", "0"),
        "launch_time": launch,
        "launch_date": launch,
        "argv": "_".join([process.tag, arguments]) if arguments else process.tag,
        "argt": process.tag,
        "args": arguments,
        "tag": process.tag,
    }


def _first(environment: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((environment[name] for name in names if name in environment), None)


def trainer_lines(run: Run) -> list[str]:
    """The workload's result as it prints it, for all ranks; the loss is left out, since no arithmetic is done."""
    if isinstance(run.workload, MatrixProduct):
        return _product_lines(run)
    if run.workload.config.json:
        return [json.dumps(_summary(run))]
    return _training_lines(run)


def _device(run: Run) -> str:
    return f"{run.device.marketing_name} (modelled)"


def _product_lines(run: Run) -> list[str]:
    product, rank = run.workload, run.ranks[0]
    flops = 2 * product.rows * product.inner * product.columns
    work = rank.device_work
    first = min(int(rank.calls["start_ns"].min()), int(work["start_ns"].min()))
    end = int((work["start_ns"] + work["duration_ns"]).max())
    each = (end - first) / product.repeat / 1e6
    return [f"{flops / 1e9:.2f} GFLOP on {_device(run)}: {each:.2f} ms with copies (mean of {product.repeat})"]


def _batch(run: Run) -> int:
    return apply_to_config(run.workload.config).batch_size


def _steady(run: Run, rank: RankRun) -> tuple[float, ...]:
    """Images per second of each steady step; of all steps where none is steady."""
    rates = rank.images_per_second
    return rates[run.workload.config.warmup_for(len(rates)) :] or rates


def _rate(run: Run, rank: RankRun) -> float:
    """Images over time, as the trainer has it: the harmonic mean of the steps' rates."""
    return statistics.harmonic_mean(_steady(run, rank))


def _training_lines(run: Run) -> list[str]:
    config, first = run.workload.config, run.ranks[0]
    precision = precision_label(config.precision, "float16")
    lines = [f"{config.model}, {precision}, batch {_batch(run)}, {_device(run)}"]
    rates = first.images_per_second
    if not rates:
        return lines
    milliseconds = [1e3 * _batch(run) / rate for rate in rates]
    steady = [1e3 * _batch(run) / rate for rate in _steady(run, first)]
    lines.append(f"steps          {len(rates)} ({config.warmup_for(len(rates))} warm-up, reported apart)")
    lines.append(f"first step     {milliseconds[0]:.1f} ms")
    lines.append(f"step           {statistics.median(steady):.1f} ms median")
    lines.append(f"images/s       {_rates_text(run)}")
    if memory := _peak_memory(run):
        lines.append(f"memory in use  at most {memory / 1e6:.0f} MB a rank")
    lines.append("loss           not modelled")
    return lines


def _rates_text(run: Run) -> str:
    rates = [_rate(run, rank) for rank in run.ranks]
    if len(rates) == 1:
        return f"{rates[0]:.1f}"
    return f"{sum(rates):.1f} in all; {statistics.median(rates):.1f} a rank ({min(rates):.1f} to {max(rates):.1f})"


def _peak_memory(run: Run) -> float | None:
    peaks = [
        float(rank.counters.loc[rank.counters["name"] == "memory_used", "value"].max())
        for rank in run.ranks
        if (rank.counters["name"] == "memory_used").any()
    ]
    return max(peaks, default=None)


def _summary(run: Run) -> dict[str, Any]:
    ranks = [
        {
            "rank": rank.rank,
            "world_size": len(run.ranks),
            "device": run.device.marketing_name,
            "steps": len(rank.images_per_second),
            "images_per_second": _rate(run, rank) if rank.images_per_second else None,
        }
        for rank in run.ranks
    ]
    return {"origin": "modelled", "error": run.error, "ranks": ranks}
