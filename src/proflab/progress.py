"""What a learner has done so far, from the local progress file, and what a room has, from those of
all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from proflab import journal
from proflab.display import Table, number
from proflab.errors import CourseError
from proflab.exercises import Exercise, Outcome
from proflab.exercises.model import PROGRESS_FILE
from proflab.recall import first_answers


def progress_file(folder: Path | None = None) -> Path:
    """The progress file of `folder`; by default of the runs folder here, else of the notebooks'
    one.
    """
    if folder is not None:
        return folder / PROGRESS_FILE
    here = journal.runs_folder() / PROGRESS_FILE
    beside = Path("notebooks") / "runs" / PROGRESS_FILE
    return beside if beside.is_file() and not here.is_file() else here


def progress_files(paths: Iterable[Path]) -> list[Path]:
    """The files of several learners: files, folders with a progress file, folders of files that
    were collected.

    Raises CourseError for a path without any.
    """
    found: dict[Path, None] = {}
    for path in paths:
        own = progress_file(path)
        files = (
            [path] if path.is_file() else [own] if own.is_file() else sorted(path.glob("*.jsonl"))
        )
        if not files:
            raise CourseError(
                f"{path}: there is no progress yet; work on a lesson, or say where with --runs"
                " FOLDER"
            )
        found |= dict.fromkeys(file.resolve() for file in files)
    return list(found)


def progress_table(records: Iterable[dict[str, Any]], exercises: Iterable[Exercise]) -> Table:
    """One row per exercise: its best outcome, its checks, the help used. Below: questions about
    earlier lessons.
    """
    records = list(records)
    by_id = _by_exercise(records, exercises)
    rows = []
    for id in sorted(by_id, key=_order):
        tried = _tried(by_id[id])
        rows.append((id, tried.outcome, str(tried.checks), ", ".join(tried.helped)))
    passed = sum(row[1] == Outcome.PASSED.value for row in rows)
    note = "\n".join([f"{passed} of {len(rows)} passed.", *_recalled([first_answers(records)])])
    return Table("Progress", ("exercise", "best outcome", "checks", "help"), rows, note)


ROOM_COLUMNS = ("exercise", "passed", "wrong", "not attempted", "median checks", "hint", "solution")
"""How many have this best outcome; checks of those who checked; how many asked for a hint, for the
solution.
"""


def room_table(files: Iterable[Path], exercises: Iterable[Exercise]) -> Table:
    """One row per exercise over the progress files of several learners; what is damaged is left
    out, and said.
    """
    exercises, learners, answers, notes = list(exercises), [], [], []
    mistakes: list[tuple[tuple[str, int], str]] = []
    for file in files:
        try:
            records, damaged = journal.records_and_damaged(file)
        except OSError as error:
            notes.append(f"{file.name}: could not be read ({error.strerror}), not counted")
            continue
        if damaged:
            rest = "the others count" if records else "nothing is left of it, not counted"
            notes.append(f"{file.name}: {damaged} damaged line{'s' if damaged > 1 else ''}, {rest}")
        if records or not damaged:
            learners.append(_by_exercise(records, exercises))
            mistakes += _mistakes(records)
            answers.append(first_answers(records))
    ids = sorted({id for learner in learners for id in learner}, key=_order)
    rows = [_room_row(id, [_tried(learner.get(id, [])) for learner in learners]) for id in ids]
    who = f"{len(learners)} participant{'s' if len(learners) != 1 else ''}"
    note = "\n".join([*_made(mistakes), *_recalled(answers), *notes])
    return Table(f"Progress of {who}", ROOM_COLUMNS, rows, note, flush_right=ROOM_COLUMNS[1:])


def _mistakes(records: Iterable[dict[str, Any]]) -> list[tuple[tuple[str, int], str]]:
    """The known mistakes of one learner, each once: exercise and place among its mistakes, and what
    was said.
    """
    found: dict[tuple[str, int], str] = {}
    for record in records:
        id, place, said = (record.get(key) for key in ("exercise", "mistake", "said"))
        if isinstance(id, str) and isinstance(place, int) and isinstance(said, str):
            found[id, place] = said
    return [*found.items()]


def _made(mistakes: Iterable[tuple[tuple[str, int], str]]) -> Iterator[str]:
    """The mistakes that most learners made, with what one of them was told."""
    said = dict(mistakes)
    counts = Counter(which for which, _ in mistakes)
    most = sorted(counts, key=lambda which: (-counts[which], which))[:WRONG_SHOWN]
    for which in most:
        learners = f"{counts[which]} participant{'s' if counts[which] > 1 else ''}"
        yield f"Mistake in {which[0]}, made by {learners}: {said[which]}"


def _recalled(answers: Iterable[dict[str, tuple[str, bool]]]) -> Iterator[str]:
    """How many first answers to questions about earlier lessons were right, and the wrong ones
    given most often.
    """
    given = Counter((id, *answer) for one in answers for id, answer in one.items())
    if not given:
        return
    right = sum(times for (_, _, is_right), times in given.items() if is_right)
    yield f"Questions about earlier lessons: {right} of {given.total()} first answers right."
    wrong = sorted(
        (-times, id, answer) for (id, answer, is_right), times in given.items() if not is_right
    )
    for minus, id, answer in wrong[:WRONG_SHOWN]:
        yield f"Wrong at first in {id}, {-minus} time{'s' if minus < -1 else ''}: {answer}"


def _room_row(id: str, tried: list[Tried]) -> tuple[str, ...]:
    outcomes = Counter(one.outcome for one in tried)
    checks = [one.checks for one in tried if one.checks]
    middle = number(median(checks)) if checks else ""
    counts = [
        str(outcomes[kind.value]) for kind in (Outcome.PASSED, Outcome.WRONG, Outcome.NOT_ATTEMPTED)
    ]
    helped = [str(sum(event in one.helped for one in tried)) for event in HELP]
    return id, *counts, middle, *helped


def _by_exercise(
    records: Iterable[dict[str, Any]], exercises: Iterable[Exercise]
) -> dict[str, list[dict[str, Any]]]:
    by_id: dict[str, list[dict[str, Any]]] = {exercise.id: [] for exercise in exercises}
    for record in records:
        if isinstance(record.get("exercise"), str):
            by_id.setdefault(record["exercise"], []).append(record)
    return by_id


WRONG_SHOWN = 5
"""So many mistakes, and wrong answers to questions about earlier lessons, are shown, those first
that came most often.
"""

HELP = ("hint", "solution")


class Tried(NamedTuple):
    """What one learner did with one exercise: best outcome, number of checks, and which of HELP was
    used.
    """

    outcome: str
    checks: int
    helped: list[str]


def _tried(records: list[dict[str, Any]]) -> Tried:
    outcomes = [record.get("outcome") for record in records if record.get("event") == "check"]
    best = next(
        (kind.value for kind in (Outcome.PASSED, Outcome.WRONG) if kind.value in outcomes), None
    )
    events = [record.get("event") for record in records]
    return Tried(
        best or Outcome.NOT_ATTEMPTED.value,
        len(outcomes),
        [event for event in HELP if event in events],
    )


def _order(id: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in id.split("."))
