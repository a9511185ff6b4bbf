"""Progress of one learner or all participants, based on their local progress files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from proflab import journal
from proflab.display import Table, near, number
from proflab.errors import CourseError
from proflab.exercises import Exercise
from proflab.exercises.model import PROGRESS_FILE
from proflab.recall import first_answers

OUTCOMES = ("passed", "wrong", "not attempted")
HELP = ("hint", "solution")
COLUMNS = (*OUTCOMES, "median checks", *HELP)
"""Columns of the progress table.

A table of several learners counts exercises by best outcome and by kind of help used. `median
checks` includes only learners who checked an answer.
"""

SHOWN = 5
"""Number of common mistakes that the table lists."""

Records = list[dict[str, Any]]


class Tried(NamedTuple):
    """One learner's work on one exercise: the best outcome, the number of checks and the help
    used.
    """

    outcome: str
    checks: int
    helped: set[str]


def progress_file() -> Path:
    """Return the progress file in the results folder or in the notebooks' results folder."""
    here = journal.runs_folder() / PROGRESS_FILE
    beside = Path("notebooks") / "runs" / PROGRESS_FILE
    return beside if beside.is_file() and not here.is_file() else here


def progress_files(paths: Iterable[Path]) -> list[Path]:
    """Return the progress files of several learners.

    Each path is a file, a folder that contains a progress file, or a folder of collected files.
    Raises CourseError if a path doesn't lead to a progress file.
    """
    # Count a file only once, even if the paths also name its folder.
    found: dict[Path, None] = {}
    for path in paths:
        own = path / PROGRESS_FILE
        files = [path] if path.is_file() else [own] if own.is_file() else [*path.glob("*.jsonl")]
        if not files:
            raise CourseError(
                f"{path} doesn't contain a progress file. Pass the folder of a progress file with"
                " --runs FOLDER."
            )
        found |= dict.fromkeys(file.resolve() for file in sorted(files))
    return list(found)


def progress_table(
    files: Iterable[Path], exercises: Iterable[Exercise], lessons: Collection[str] = ()
) -> Table:
    """Return one row for each lesson, or for each exercise of the lessons in `lessons`.

    The rows cover all learners. Lines below the table show the most common mistakes and the
    results of questions about earlier lessons. Raises CourseError for a lesson without
    exercises.
    """
    learners, notes = _read(files)
    known = {exercise.id for exercise in exercises}
    # Include progress in exercises that the course no longer contains.
    known |= {one["exercise"] for own in learners for one in own if "exercise" in one}
    by_lesson = {id.partition(".")[0] for id in known}
    if unknown := sorted({*lessons} - by_lesson):
        raise CourseError(
            f"--lesson {unknown[0]}: there is no such lesson; {near(unknown[0], by_lesson)}"
        )
    ids = [id for id in sorted(known, key=_order) if not lessons or _lesson(id) in lessons]
    rows = []
    for name, group in groupby(ids, str if lessons else _lesson):
        of_group = set(group)
        tried = [_tried(own, id) for id in of_group for own in learners]
        outcomes = Counter(one.outcome for one in tried)
        checks = [one.checks for one in tried if one.checks]
        helped = [str(sum(event in one.helped for one in tried)) for event in HELP]
        counts = [str(outcomes[outcome]) for outcome in OUTCOMES]
        rows.append((name, *counts, number(median(checks)) if checks else "", *helped))
    caption = f"Progress of {len(learners)} participant{'s' * (len(learners) != 1)}"
    note = "\n".join([*_mistakes(learners, {*ids}), *_recalled(learners), *notes])
    columns = ("exercise" if lessons else "lesson", *COLUMNS)
    return Table(caption, columns, rows, note, flush_right=COLUMNS)


def _read(files: Iterable[Path]) -> tuple[list[Records], list[str]]:
    """Return each learner's records, and a note about each damaged file."""
    learners, notes = [], []
    for file in files:
        try:
            records, damaged = journal.records_and_damaged(file)
        except OSError as error:
            notes.append(f"{file.name}: the file couldn't be read ({error.strerror})")
            continue
        if damaged:
            notes.append(f"{file.name}: number of ignored damaged lines: {damaged}")
        if records or not damaged:
            kept = [one for one in records if isinstance(one.get("exercise", ""), str)]
            learners.append(kept)
    return learners, notes


def _tried(records: Records, id: str) -> Tried:
    own = [one for one in records if one.get("exercise") == id]
    checked = [one.get("outcome") for one in own if one.get("event") == "check"]
    best = next((outcome for outcome in OUTCOMES if outcome in checked), OUTCOMES[-1])
    return Tried(best, len(checked), {str(one.get("event")) for one in own})


def _mistakes(learners: Iterable[Records], ids: Collection[str]) -> Iterator[str]:
    """Yield the most common mistakes. Each mistake counts once per learner."""
    counts: Counter[tuple[str, int]] = Counter()
    said: dict[tuple[str, int], str] = {}
    for records in learners:
        made = {
            (one["exercise"], one["mistake"]): str(one.get("said"))
            for one in records
            if one.get("exercise") in ids and isinstance(one.get("mistake"), int)
        }
        counts.update(made.keys())
        said |= made
    for which, times in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        yield f"Mistake in {which[0]}, number of participants: {times}. {said[which]}"


def _recalled(learners: Iterable[Records]) -> Iterator[str]:
    """Yield the share of right first answers to questions about earlier lessons."""
    given = [right for own in learners for _, right in first_answers(own).values()]
    if given:
        yield (
            f"Questions about earlier lessons: {sum(given)} of {len(given)} first answers were"
            " right."
        )


def _lesson(id: str) -> str:
    return id.partition(".")[0]


def _order(id: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in id.split("."))
