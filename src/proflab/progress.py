"""What a learner has done so far, from the local progress file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from proflab import journal
from proflab.display import Table
from proflab.exercises import Exercise, Outcome
from proflab.exercises.model import PROGRESS_FILE


def progress_file(folder: Path | None = None) -> Path:
    """The progress file of `folder`; by default of the runs folder here, else of the notebooks' one."""
    if folder is not None:
        return folder / PROGRESS_FILE
    here = journal.runs_folder() / PROGRESS_FILE
    beside = Path("notebooks") / "runs" / PROGRESS_FILE
    return beside if beside.is_file() and not here.is_file() else here


def progress_table(records: Iterable[dict[str, Any]], exercises: Iterable[Exercise]) -> Table:
    """One row per exercise: its best outcome, how often it was checked, and what help was used."""
    by_id: dict[str, list[dict[str, Any]]] = {exercise.id: [] for exercise in exercises}
    for record in records:
        if isinstance(record.get("exercise"), str):
            by_id.setdefault(record["exercise"], []).append(record)
    rows = [_row(id, by_id[id]) for id in sorted(by_id, key=_order)]
    passed = sum(row[1] == Outcome.PASSED.value for row in rows)
    return Table("Progress", ("exercise", "best outcome", "checks", "help"), rows, f"{passed} of {len(rows)} passed.")


def _row(id: str, records: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    outcomes = [record.get("outcome") for record in records if record.get("event") == "check"]
    best = next((kind.value for kind in (Outcome.PASSED, Outcome.WRONG) if kind.value in outcomes), None)
    events = {record.get("event") for record in records}
    used = [event for event in ("hint", "solution") if event in events]
    return id, best or Outcome.NOT_ATTEMPTED.value, str(len(outcomes)), ", ".join(used)


def _order(id: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in id.split("."))
