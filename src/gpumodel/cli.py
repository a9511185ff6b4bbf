"""The command line: validate the model, list devices, write a played run in a tool's format.

Slow modules are imported where they are needed, so that `--help` and errors come at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cifar_train import config as trainer
from gpumodel.workload import SOLUTIONS, Training
from tidyprof.command_line import Parser, program
from tidyprof.errors import UserError
from tidyprof.standard_streams import tell


def build_parser() -> argparse.ArgumentParser:
    """Three commands; `write` hands every option that it doesn't know to the trainer's own
    parser.
    """
    parser = Parser(
        prog=program("gpumodel"), description="A model of AMD GPUs. Nothing it prints was measured."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("validate", help="compare the model with published measurements")
    check.add_argument(
        "--write", action="store_true", help="write the clause on the error that figures show"
    )
    check.add_argument(
        "--page", type=Path, help="renew the table in this page, such as docs/gpumodel.md"
    )
    commands.add_parser("devices", help="list the devices and their peaks")
    write = commands.add_parser(
        "write", help="play a training run and write it", allow_abbrev=False
    )
    parser.passes_on = write.passes_on = True
    write.add_argument("format", help="kineto, rocprofv3-csv, rocpd, rpd, perfetto, ...")
    write.add_argument("folder", type=Path, help="where to write; made if missing")
    write.add_argument(
        "--ranks", type=int, default=1, help="processes with one device each (default: %(default)s)"
    )
    write.add_argument(
        "--model-device", default="MI300X", help="device to model (default: %(default)s)"
    )
    write.add_argument(
        "--solutions", choices=SOLUTIONS, default=SOLUTIONS[0], help="MIOpen's kernels"
    )
    write.add_argument(
        "--profiler", default="none", help="tool whose overhead is added (default: %(default)s)"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 0 for success, 1 if a figure misses its bar, 2 for an error that the
    user can mend.
    """
    try:
        options, rest = build_parser().parse_known_args(arguments)
        if options.command == "validate":
            return _validate(options)
        return _devices() if options.command == "devices" else _write(options, rest)
    except UserError as error:
        tell(f"error: {error}")
        return 2


def _validate(options: argparse.Namespace) -> int:
    from rich.console import Console

    from gpumodel import validation
    from gpumodel.devices import write_model_error

    compared = validation.rows()
    missed = [row for row in compared if row.missed]
    Console(width=80).print(validation.table(compared))
    print(f"Bars missed: {len(missed)}.")
    for row in missed:
        print(f"  {row.quantity}: {row.missed_because or 'not known why'}")
    print("Sources:")
    for key, source in validation.published()["sources"].items():
        print(f"  {key}: {source}")
    if options.page:
        validation.write_page(compared, options.page)
    if options.write:
        target = write_model_error(validation.clause())
        print(f"gpumodel: wrote {target}", file=sys.stderr)
    return 1 if missed else 0


def _devices() -> int:
    from rich.console import Console
    from rich.table import Table

    from gpumodel.devices import device, names

    shown = Table(title="Devices (one process's view; dense peaks)", title_justify="left")
    for column in (
        "name",
        "gfx",
        "CUs",
        "MHz",
        "memory GB",
        "TB/s",
        "float32",
        "float16",
        "float8",
    ):
        shown.add_column(column, justify="left" if column in ("name", "gfx") else "right")
    for name in names():
        entry = device(name)
        peaks = [
            entry.peak_flops.get(key)
            for key in ("vector float32", "matrix float16", "matrix float8")
        ]
        shown.add_row(
            name,
            entry.gfx or "-",
            str(entry.compute_units),
            str(entry.clock_mhz),
            f"{entry.memory_bytes / 1e9:.0f}",
            f"{entry.memory_bandwidth / 1e12:.2f}",
            *("-" if peak is None else f"{peak / 1e12:.1f}" for peak in peaks),
        )
    Console(width=80).print(shown)
    print("float32: vector units; float16, float8: matrix units; TFLOP/s.")
    return 0


def _write(options: argparse.Namespace, rest: Sequence[str]) -> int:
    # The trainer's options are checked before the slow imports.
    config = trainer.parse(rest)
    from gpumodel import writers
    from gpumodel.simulation import simulate

    workload = Training(
        config=config,
        ranks=options.ranks,
        device=options.model_device,
        solutions=options.solutions,
        profiler=options.profiler,
    )
    run, folder = simulate(workload), options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        print(*writers.write(options.format, run, folder), sep="\n")
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); give another folder"
        ) from error
    return 0
