"""The command `hang`, which finds the missing rank in a job's flight recorder dumps."""

from __future__ import annotations

import json
import re
from argparse import Namespace

import pandas as pd

from tidyprof.analyses.hang import find_missing_ranks
from tidyprof.cli.output import check_targets, columns_of, say, show, showing, write_report
from tidyprof.readers.flight_recorder.reader import read_flight_recorder


def hang(options: Namespace) -> None:
    """Show the verdict and the last call of each rank. Write both to a JSON file if requested."""
    check_targets(options)
    found = find_missing_ranks(read_flight_recorder(options.files[0]))
    headings = {
        "rank": "rank",
        "dump": "dump",
        "group": "group",
        "last": "number",
        "call": "call",
        "elements": "elements",
    }
    headings |= {"late ms": "after_ns", "line": "line"}
    if _named_by_rank(found.table):
        # The column would only repeat the ranks, and it would leave less space for other columns.
        del headings["dump"]
    if found.table["group"].nunique() < 2:
        del headings["group"]
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


def _named_by_rank(table: pd.DataFrame) -> bool:
    """Return True if the rank is the only number in the name of every dump."""
    return all(
        pd.isna(dump) or re.findall(r"\d+", str(dump)) == [str(rank)]
        for rank, dump in zip(table["rank"], table["dump"], strict=True)
    )
