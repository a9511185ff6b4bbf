"""Which workload a command line means: the trainer or the matrix product, alone or behind a
launcher.

Nothing here imports torch or pandas, so that a wrong command is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from cifar_train import config as trainer
from cifar_train import matmul
from cifar_train.ranks import discover
from gpumodel.workload import MAXIMUM_RANKS, MatrixProduct, Training, Workload
from tidyprof.errors import UserError

KNOWN_COMMANDS = "python -m cifar_train ..., cifar-train ... or python -m cifar_train.matmul ..."

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_PYTHON_FLAGS = {"-B", "-d", "-E", "-i", "-I", "-O", "-OO", "-P", "-q", "-s", "-S", "-u", "-v"}
_PYTHON_VALUES = {"-X", "-W"}


@dataclass(frozen=True)
class _Syntax:
    """A launcher's options, named without hyphens: those of `values` take one value, those of
    `pairs` two, those of `flags` none.
    """

    values: frozenset[str]
    flags: frozenset[str]
    pairs: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LAUNCHERS = {
    "torchrun": _Syntax(
        _words(
            "nproc-per-node nnodes node-rank master-addr master-port rdzv-backend rdzv-endpoint"
            " rdzv-id rdzv-conf max-restarts monitor-interval start-method role log-dir redirects r"
            " tee t local-ranks-filter local-addr numa-binding"
        ),
        _words("standalone m module"),
    ),
    "mpirun": _Syntax(
        _words(
            "n np c N npernode ppn map-by bind-to rank-by x H host hostfile machinefile wdir wd"
            " prefix output-filename"
        ),
        _words("oversubscribe allow-run-as-root tag-output report-bindings q quiet v verbose"),
        _words("mca gmca"),
    ),
    "srun": _Syntax(
        _words(
            "n ntasks N nodes c cpus-per-task G gpus gpus-per-node gpus-per-task ntasks-per-node"
            " ntasks-per-gpu t time p partition A account J job-name w nodelist x exclude o output"
            " e error i input gres mem mem-per-cpu cpu-bind gpu-bind mpi export D chdir q qos jobid"
            " m distribution C constraint reservation cpus-per-gpu"
        ),
        _words(
            "exclusive overlap exact l label u unbuffered v verbose Q quiet K kill-on-bad-exit O"
            " overcommit s oversubscribe"
        ),
    ),
}
"""Options as the manuals list them: torchrun
(https://docs.pytorch.org/docs/stable/elastic/run.html), mpirun of Open MPI
(https://docs.open-mpi.org/en/main/man-openmpi/man1/mpirun.1.html) and srun
(https://slurm.schedmd.com/srun.html).
"""

_SAME_LAUNCHER = {"mpiexec": "mpirun"}


@dataclass(frozen=True)
class Command:
    """What a command line asks for.

    workload -- what is to be played, over all ranks.
    rank     -- the rank that this process has under a launcher, None where it starts all of them
                itself.
    launcher -- torchrun, mpirun or srun where the command names one, else None.
    program  -- the workload's own command line, without the launcher's.
    nodes    -- how many nodes the launcher spreads the ranks over; the model knows one.
    """

    workload: Workload
    program: tuple[str, ...]
    rank: int | None = None
    launcher: str | None = None
    nodes: int = 1

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks whose files this process writes."""
        if self.rank is not None:
            return (self.rank,)
        return tuple(range(self.workload.ranks)) if isinstance(self.workload, Training) else (0,)

    def environment_of(self, rank: int, environment: Mapping[str, str]) -> dict[str, str]:
        """`environment`, and in it the variables that the command's launcher sets for this rank.

        The model has one node, so the local rank is the rank.
        """
        size = self.workload.ranks if isinstance(self.workload, Training) else 1
        names = {
            "torchrun": ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
            "mpirun": (
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_SIZE",
            ),
            "srun": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
        }.get(self.launcher or "", ())
        return dict(environment) | dict(zip(names, (str(rank), str(rank), str(size)), strict=False))


def workload_of(
    command: Sequence[str], environment: Mapping[str, str], **knobs: object
) -> Workload:
    """The workload that `command` starts in `environment`; see `read_command`."""
    return read_command(command, environment, **knobs).workload


def read_command(
    command: Sequence[str], environment: Mapping[str, str], **knobs: object
) -> Command:
    """Understand `command`: the course's workload alone, or behind torchrun, mpirun or srun.

    knobs -- fields of gpumodel.workload.Training: device, solutions, profiler, stacks and seed.

    Ranks come from the launcher in the command; without one, from the variables that a launcher
    around this process has set, by the trainer's own rules. Raises UserError for any other command,
    with the trainer's own message for options that the trainer refuses.
    """
    words = list(command)
    if not words:
        raise UserError(f"no program to run; give {KNOWN_COMMANDS}")
    name = PurePath(words[0]).name
    launcher = _SAME_LAUNCHER.get(name, name)
    if words[:3][1:] == ["-m", "torch.distributed.run"] and _PYTHON.fullmatch(name):
        launcher, words = "torchrun", words[2:]
    if launcher in LAUNCHERS:
        options, program = _split(launcher, words[1:])
        ranks, nodes = _COUNTS[launcher](options, environment)
        if launcher == "torchrun":
            # torchrun adds Python itself, so the word is missing in its command line.
            program = ["python3", *(["-m"] if {"m", "module"} & set(options) else []), *program]
        return Command(_workload(program, ranks, knobs), tuple(program), None, launcher, nodes)
    place = discover(environment)
    nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1")) if place.launcher == "Slurm" else 1
    rank = place.rank if place.launcher else None
    return Command(_workload(words, place.world_size, knobs), tuple(words), rank, None, nodes)


def _workload(program: Sequence[str], ranks: int, knobs: Mapping[str, object]) -> Workload:
    module, arguments = _program(program)
    if ranks > MAXIMUM_RANKS:
        raise UserError(
            f"{ranks} ranks: one node of {MAXIMUM_RANKS} devices is modelled; start {MAXIMUM_RANKS}"
            " at most"
        )
    if module == "cifar_train.matmul":
        return _matrix_product(arguments, ranks, knobs)
    config = trainer.parse(arguments)
    if config.download_only:
        raise UserError(
            "--download-only trains nothing, so there is nothing to record; run it without the tool"
        )
    _refuse_other_devices(config.device)
    return Training(config=config, ranks=ranks, **knobs)


def _matrix_product(
    arguments: Sequence[str], ranks: int, knobs: Mapping[str, object]
) -> MatrixProduct:
    if ranks > 1:
        raise UserError(
            f"cifar_train.matmul is one process, but {ranks} were to be started; leave the"
            " launcher out"
        )
    options = matmul.build_parser().parse_args(arguments)
    (rows, inner), columns = options.x_shape, options.w_shape[1]
    _refuse_other_devices(options.device)
    known = {name: value for name, value in knobs.items() if name in ("device", "profiler", "seed")}
    return MatrixProduct(rows, inner, columns, options.repeat, **known)


def _refuse_other_devices(name: str) -> None:
    if name not in ("auto", "cuda"):
        raise UserError(
            f"--device {name}: nothing would run on the modelled GPU; leave --device out"
        )


def _program(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The course's module that the words start, and its arguments. Raises UserError for any other
    program.
    """
    name = PurePath(words[0]).name if words else ""
    if name == "cifar-train":
        return "cifar_train", words[1:]
    if _PYTHON.fullmatch(name):
        rest = _after_python_options(words[1:])
        if rest[:1] == ["-m"] and rest[1:2] and rest[1] in ("cifar_train", "cifar_train.matmul"):
            return rest[1], rest[2:]
    raise UserError(
        f"{' '.join(words)!r} is not the course's workload, and this stand-in knows no other; "
        f"the real tool would run anything; here give {KNOWN_COMMANDS}"
    )


def _after_python_options(words: Sequence[str]) -> list[str]:
    rest = list(words)
    while rest and rest[0] in _PYTHON_FLAGS | _PYTHON_VALUES:
        rest = rest[2:] if rest[0] in _PYTHON_VALUES else rest[1:]
    return rest


def _split(launcher: str, words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """A launcher's own options by name, and the program behind them."""
    syntax, options, rest = LAUNCHERS[launcher], {}, list(words)
    # All three write `--name=value` and `--name value`. Beside that torchrun takes underscores for
    # hyphens, and srun a short option with its value glued to it (-n4).
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        if launcher == "torchrun":
            name = name.replace("_", "-")
        if name in syntax.flags:
            options[name] = value
        elif name in syntax.pairs:
            rest = rest[2:]
        elif name in syntax.values:
            options[name] = value if equals else _value(launcher, word, rest)
        elif launcher == "srun" and not word.startswith("--") and name[:1] in syntax.values:
            options[name[0]] = word[2:]
        else:
            raise UserError(
                f"{launcher} {word}: an option that this stand-in does not know; leave it out"
            )
    return options, rest


def _value(launcher: str, option: str, rest: list[str]) -> str:
    if not rest:
        raise UserError(f"{launcher} {option} needs a value")
    return rest.pop(0)


def _torchrun_counts(options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[int, int]:
    nodes = _number("torchrun --nnodes", options.get("nnodes", "1").rpartition(":")[2])
    return nodes * _number("torchrun --nproc-per-node", options.get("nproc-per-node", "1")), nodes


def _mpirun_counts(options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[int, int]:
    count = next((options[name] for name in ("n", "np", "c") if name in options), None)
    if count is None:
        raise UserError(
            "mpirun starts one process per core where -n is missing; say how many: mpirun -n 4 ..."
        )
    return _number("mpirun -n", count), 1


def _srun_counts(options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[int, int]:
    # Of a range of nodes (2-4) Slurm gives as many as it can. Without a number of tasks it starts
    # one on each node.
    stated = options.get("nodes", options.get("N", environment.get("SLURM_NNODES", "1")))
    nodes = _number("srun --nodes", stated.rpartition("-")[2])
    tasks = options.get("ntasks", options.get("n"))
    if tasks is None and "ntasks-per-node" in options:
        return nodes * _number("srun --ntasks-per-node", options["ntasks-per-node"]), nodes
    return _number("srun --ntasks", tasks or environment.get("SLURM_NTASKS", str(nodes))), nodes


def _number(what: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{what} must be a whole number of at least 1 here, not {text!r}")
    return int(text)


_COUNTS = {"torchrun": _torchrun_counts, "mpirun": _mpirun_counts, "srun": _srun_counts}
