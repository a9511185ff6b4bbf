"""Stand-in for rpd2tracing.py of rocmProfileData: an .rpd file as a Chrome trace; it reads real ones as well.

Options: github.com/ROCm/rocmProfileData, tools/rpd2tracing.py. The tracks QueueDepth and Idle are not written.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0, or 2 for a wrong option or file."""
    options = build_parser(tool).parse_args(arguments)
    target = Path(options.output_json or Path(options.input_rpd).with_suffix(".json"))
    if not target.name.endswith((".json", ".json.gz")):
        raise UserError(f"{target}: a Chrome trace is written to a file that ends in .json or .json.gz")
    print(f"{tool}: stand-in, nothing was measured here: it reads {options.input_rpd}", file=sys.stderr)
    import tidyprof

    try:
        profile = tidyprof.read_rpd(options.input_rpd)
        written = tidyprof.write_chrome_trace(_cut(profile, options.start, options.end), target)
        if options.format == "array":
            _as_array(target)
    except tidyprof.ProfileReadError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); give another file") from error
    print(f"{target}: {written.events} events")
    return 0


def build_parser(tool: str) -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(prog=tool, description="Stand-in for rpd2tracing.py of rocmProfileData.")
    parser.add_argument("input_rpd", help="file to read")
    parser.add_argument("output_json", nargs="?", help="file to write; default: the same name with .json")
    parser.add_argument("--start", help="begin: microseconds of the file's clock, or percent")
    parser.add_argument("--end", help="end: microseconds of the file's clock, or percent")
    parser.add_argument("--format", choices=("object", "array"), default="object", help="default: object")
    return parser


def _cut(profile: Profile, start: str | None, end: str | None) -> Profile:
    events = profile.events
    if (start is None and end is None) or events.empty:
        return profile
    first, last = int(events["start_ns"].min()), int((events["start_ns"] + events["duration_ns"]).max())
    begin, finish = _moment(start, first, last, first), _moment(end, first, last, last)
    inside = (events["start_ns"] >= begin) & (events["start_ns"] + events["duration_ns"] <= finish)
    return replace(profile, events=events[inside].reset_index(drop=True))


def _moment(text: str | None, first: int, last: int, default: int) -> float:
    if text is None:
        return default
    try:
        return first + float(text[:-1]) / 100 * (last - first) if text.endswith("%") else float(text) * 1e3
    except ValueError:
        raise UserError(f"--start and --end take microseconds or percent (30%), not {text!r}") from None


def _as_array(target: Path) -> None:
    open_file = gzip.open if target.suffix == ".gz" else open
    with open_file(target, "rt") as source:
        events = json.load(source)["traceEvents"]
    with open_file(target, "wt") as out:
        json.dump(events, out)
