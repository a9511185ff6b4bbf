"""`python -m tools.notebooks build [--check]`, `lint` and `minutes`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from proflab.errors import CourseError
from tidyprof.errors import UserError
from tools.notebook_lint import lint_all
from tools.notebooks import COLUMNS, Folders, read_sources, read_workshops, stale, write
from tools.notebooks.minutes import needed, sections


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, check or lint.

    Return 0, 1 for stale notebooks or lint findings, and 2 for a lesson that can't be read.
    """
    options = build_parser().parse_args(arguments)
    folders = Folders(options.lessons, options.notebooks, options.combined)
    try:
        return options.run(folders, options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.notebooks", description="Build notebooks from lessons."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build_command = commands.add_parser(
        "build", help="write the notebooks and overwrite any edits in them"
    )
    build_command.add_argument(
        "--check",
        action="store_true",
        help="write only the combined notebooks; exit with 1 if a learner's notebook is stale",
    )
    build_command.set_defaults(run=_run_build)
    lint = commands.add_parser("lint", help="check lessons and notebooks against the rules")
    lint.add_argument(
        "--columns",
        type=int,
        nargs="?",
        const=COLUMNS,
        help=f"also find longer lines of code (default for N: {COLUMNS})",
    )
    lint.set_defaults(run=_run_lint)
    minutes = commands.add_parser("minutes", help="print how long each section takes by the rule")
    minutes.set_defaults(run=_run_minutes)
    for command in (build_command, lint, minutes):
        for name, default in vars(Folders()).items():
            command.add_argument(
                f"--{name}",
                type=Path,
                default=default,
                help="use this folder (default: %(default)s)",
            )
    return parser


def _run_build(folders: Folders, options: argparse.Namespace) -> int:
    if not folders.lessons.is_dir():
        raise CourseError(
            f"{folders.lessons} doesn't exist. Run this at the top of the course, or pass"
            " --lessons."
        )
    if options.check:
        write(folders, combined_only=True)
        findings = stale(folders)
        print(
            "\n".join(
                [*findings, "run `make notebooks`"]
                if findings
                else ["all notebooks are up to date"]
            )
        )
        return 1 if findings else 0
    for path in write(folders):
        print(path)
    return 0


def _run_lint(folders: Folders, options: argparse.Namespace) -> int:
    findings = lint_all(folders, options.columns)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


def _run_minutes(folders: Folders, options: argparse.Namespace) -> int:
    wrong = 0
    for source in [*read_sources(folders.lessons), *read_workshops(folders.lessons)]:
        lesson, total = source.lesson, needed(source)
        file = source.path.with_suffix(".toml").name
        wrong += lesson.minutes != total
        print(f"{lesson.number} {total:4d} minutes by the rule, and {file} states {lesson.minutes}")
        print(
            "".join(f"     {minutes:5.1f} {heading}\n" for heading, minutes in sections(source)),
            end="",
        )
        print(f"     {lesson.waiting:5.1f} waiting")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
