"""The command `hang`, which finds the missing rank in a job's flight recorder dumps."""

from __future__ import annotations

import json
from argparse import Namespace

from tidyprof.analyses.hang import find_missing_ranks
from tidyprof.cli.output import cells_of, check_targets, say, show, showing, write_report
from tidyprof.readers.flight_recorder.reader import read_flight_recorder


def hang(options: Namespace) -> None:
    """Show the verdict and the last call of each rank. Write both to a JSON file if requested."""
    check_targets(options)
    found = find_missing_ranks(read_flight_recorder(options.files[0]))
    headings = {
        "rank": "rank",
        "dump": "dump",
        "last": "number",
        "call": "call",
        "elements": "elements",
        "late ms": "after_ns",
        "line": "line",
    }
    with showing(options):
        say(found.sentence, "bold")
        say("")
        show(cells_of(found.table, headings))
    if options.json is not None:
        rows = json.loads(found.table.to_json(orient="records", double_precision=15))
        report = {
            "verdict": found.kind,
            "ranks": found.ranks,
            "sentence": found.sentence,
            "last_calls": rows,
        }
        write_report("--json", options.json, json.dumps(report, indent=1) + "\n")
