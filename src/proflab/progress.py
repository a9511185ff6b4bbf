"""The progress of a learner, from the local progress file, and of a room, from the files of all
learners.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from textwrap import shorten
from typing import Any, NamedTuple

from proflab import journal
from proflab.display import Table, near, number
from proflab.errors import CourseError
from proflab.exercises import Exercise, Outcome
from proflab.exercises.model import PROGRESS_FILE
from proflab.recall import first_answers

Mistake = tuple[tuple[str, int], str]
"""Exercise and place among its mistakes, and the message to it."""


def progress_file(folder: Path | None = None) -> Path:
    """The progress file of `folder`; by default of the runs folder here, else of the notebooks'
    runs folder.
    """
    if folder is not None:
        return folder / PROGRESS_FILE
    here = journal.runs_folder() / PROGRESS_FILE
    beside = Path("notebooks") / "runs" / PROGRESS_FILE
    return beside if beside.is_file() and not here.is_file() else here


def progress_files(paths: Iterable[Path]) -> list[Path]:
    """The files of several learners: from files, folders with a progress file, and folders of
    collected files.

    Raises CourseError for a path without any.
    """
    # A file that is named twice, as by its folder, too, is one learner's.
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


def progress_table(
    records: Iterable[dict[str, Any]], exercises: Iterable[Exercise], lessons: Collection[str] = ()
) -> Table:
    """One row for each lesson, or for each exercise of the lessons named: its best outcome, its
    checks, the help used. Below: the mistakes, and the questions about earlier lessons.

    Raises CourseError for a lesson without exercises.
    """
    records = list(records)
    by_id = _by_exercise(records, exercises)
    wanted = _in(lessons, by_id)
    tried = {id: _tried(by_id[id]) for id in wanted}
    mistakes = [one for one in _mistakes(records) if one[0][0] in wanted]
    passed = sum(one.outcome == Outcome.PASSED.value for one in tried.values())
    notes = [f"{passed} of {len(tried)} passed.", *_recalled([first_answers(records)])]
    note = "\n".join([*notes, *_made(mistakes, "time")])
    if not lessons:
        return _lesson_table("Progress", [tried], mistakes, note)
    rows = [(id, own.outcome, str(own.checks), ", ".join(own.helped)) for id, own in tried.items()]
    columns = ("exercise", "best outcome", "checks", "help")
    return Table("Progress", columns, rows, note, flush_right=("checks",))


LESSON_COLUMNS = ("lesson", "passed", "wrong", "not attempted", "helped", "commonest mistake")
"""Number of exercises of the lesson, over all learners, with this best outcome, and number of those
with a hint or the solution.
"""

WORDS = 32
"""Characters of a mistake for which a line of 80 has room."""


def _lesson_table(
    caption: str,
    learners: Sequence[Mapping[str, Tried]],
    mistakes: Iterable[Mistake],
    note: str,
) -> Table:
    """One row for each lesson over all learners, who have the same exercises in the same order."""
    said: dict[str, Counter[str]] = {}
    for (id, _), words in mistakes:
        said.setdefault(_lesson(id), Counter())[f"{id}: {words}"] += 1
    rows = []
    # The first learner stands for all: they have the same exercises.
    for lesson, own in groupby(learners[0] if learners else (), _lesson):
        tried = [learner[id] for id in own for learner in learners]
        most = said[lesson].most_common(1)[0][0] if lesson in said else ""
        helped = str(sum(bool(one.helped) for one in tried))
        rows.append((lesson, *_outcomes(tried), helped, shorten(most, WORDS, placeholder=" …")))
    return Table(caption, LESSON_COLUMNS, rows, note, flush_right=LESSON_COLUMNS[1:-1])


def _lesson(id: str) -> str:
    return id.partition(".")[0]


def _in(lessons: Collection[str], ids: Iterable[str]) -> list[str]:
    """The exercises of these lessons, by default of all, in order. Raises CourseError for a lesson
    without exercises.
    """
    ids = sorted(ids, key=_order)
    known = {_lesson(id) for id in ids}
    if unknown := sorted({*lessons} - known):
        found = f"--lesson {unknown[0]}: there is no exercise of such a lesson"
        raise CourseError(f"{found}; {near(unknown[0], known)}")
    return [id for id in ids if not lessons or _lesson(id) in lessons]


ROOM_COLUMNS = ("exercise", "passed", "wrong", "not attempted", "median checks", "hint", "solution")
"""Number of learners with this best outcome; checks of those who checked; number of those who asked
for a hint, for the solution.
"""


def room_table(
    files: Iterable[Path], exercises: Iterable[Exercise], lessons: Collection[str] = ()
) -> Table:
    """The same over the progress files of several learners; damaged lines are left out, and a note
    says so.

    Raises CourseError for a lesson without exercises.
    """
    exercises, learners, answers, notes = list(exercises), [], [], []
    mistakes: list[Mistake] = []
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
            # A mistake counts once for each learner.
            mistakes += dict.fromkeys(_mistakes(records))
            answers.append(first_answers(records))
    wanted = _in(lessons, {id for learner in learners for id in learner})
    tried = [{id: _tried(learner.get(id, [])) for id in wanted} for learner in learners]
    mistakes = [one for one in mistakes if one[0][0] in wanted]
    caption = f"Progress of {len(learners)} participant{'s' if len(learners) != 1 else ''}"
    note = "\n".join([*_made(mistakes, "participant"), *_recalled(answers), *notes])
    if not lessons:
        return _lesson_table(caption, tried, mistakes, note)
    rows = [_room_row(id, [learner[id] for learner in tried]) for id in wanted]
    return Table(caption, ROOM_COLUMNS, rows, note, flush_right=ROOM_COLUMNS[1:])


def _mistakes(records: Iterable[dict[str, Any]]) -> list[Mistake]:
    """The known mistakes of one learner, each as often as it was made."""
    found = []
    for record in records:
        id, place, said = (record.get(key) for key in ("exercise", "mistake", "said"))
        if isinstance(id, str) and isinstance(place, int) and isinstance(said, str):
            found.append(((id, place), said))
    return found


def _made(mistakes: Iterable[Mistake], what: str) -> Iterator[str]:
    """The most frequent mistakes, with the messages to them.

    what -- "time", or "participant" if each learner counts once.
    """
    said = dict(mistakes)
    counts = Counter(which for which, _ in mistakes)
    most = sorted(counts, key=lambda which: (-counts[which], which))[:WRONG_SHOWN]
    for which in most:
        often = f"{counts[which]} {what}{'s' if counts[which] > 1 else ''}"
        by = "by " if what == "participant" else ""
        yield f"Mistake in {which[0]}, made {by}{often}: {said[which]}"


def _recalled(answers: Iterable[dict[str, tuple[str, bool]]]) -> Iterator[str]:
    """How many first answers to questions about earlier lessons were right, and the most frequent
    wrong ones.
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
    checks = [one.checks for one in tried if one.checks]
    middle = number(median(checks)) if checks else ""
    helped = [str(sum(event in one.helped for one in tried)) for event in HELP]
    return id, *_outcomes(tried), middle, *helped


def _outcomes(tried: Iterable[Tried]) -> list[str]:
    counts = Counter(one.outcome for one in tried)
    kinds = (Outcome.PASSED, Outcome.WRONG, Outcome.NOT_ATTEMPTED)
    return [str(counts[kind.value]) for kind in kinds]


def _by_exercise(
    records: Iterable[dict[str, Any]], exercises: Iterable[Exercise]
) -> dict[str, list[dict[str, Any]]]:
    # Progress in an exercise that has left the course is kept.
    by_id: dict[str, list[dict[str, Any]]] = {exercise.id: [] for exercise in exercises}
    for record in records:
        if isinstance(record.get("exercise"), str):
            by_id.setdefault(record["exercise"], []).append(record)
    return by_id


WRONG_SHOWN = 5
"""Number of mistakes, and of wrong answers to questions about earlier lessons, that are shown: the
most frequent first.
"""

HELP = ("hint", "solution")


class Tried(NamedTuple):
    """What one learner did with one exercise: best outcome, number of checks, and the help used, of
    HELP.
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
