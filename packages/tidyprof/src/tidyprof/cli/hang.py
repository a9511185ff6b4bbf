"""The command `hang`: the flight recorder's dumps of a job in, who is missing out."""

from __future__ import annotations

import json
from argparse import Namespace

from tidyprof.analyses.hang import who_is_missing
from tidyprof.cli.output import check_targets, columns_of, say, show, showing, write_report
from tidyprof.readers.flight_recorder.reader import read_flight_recorder


def hang(options: Namespace) -> None:
    """Show the verdict and the last call of each rank, and write both if asked to."""
    check_targets(options)
    found = who_is_missing(read_flight_recorder(options.files[0]))
    headings = {
        "rank": "rank",
        "dump": "dump",
        "last": "number",
        "call": "call",
        "elements": "elements",
    }
    headings |= {"late ms": "after_ns", "line": "line"}
    with showing(options):
        say(found.sentence, "bold")
        say("")
        show(columns_of(found.table, headings))
    if options.json is not None:
        rows = json.loads(found.table.to_json(orient="records", double_precision=15))
        report = {
            "verdict": found.kind,
            "ranks": found.ranks,
            "sentence": found.sentence,
            "last_calls": rows,
        }
        write_report("--json", options.json, json.dumps(report, indent=1) + "\n")
