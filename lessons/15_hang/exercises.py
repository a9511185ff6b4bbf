"""Exercises of lesson 15, who is missing: dumps of the flight recorder that gloo wrote, and what
the ranks printed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

LATE, DEAD, FEWER, SIZE = CAUSES = (
    "it came late",
    "it is dead",
    "it has fewer batches",
    "its batch has another size",
)

AGAINST = {
    LATE: "All ranks made call 4, within a moment. Look at what they called.",
    DEAD: "It left a dump with four calls and reported a time-out itself.",
    SIZE: "Calls 1 to 3 have the same size everywhere, and call 4 is not the same call.",
}
"""What speaks against each other cause."""


def calls_in(folder: Path) -> pd.DataFrame:
    """The calls of a folder of dumps."""
    from tidyprof.readers.flight_recorder.reader import read_flight_recorder

    return read_flight_recorder(folder)


def first_to_complain(folder: Path) -> int:
    """The rank that reported an error first. Raises ValueError if none did."""
    found = [
        (float(text.split()[0]), int(file.stem.removeprefix("log_")))
        for file in folder.glob("log_*.txt")
        if " says: " in (text := file.read_text(encoding="utf-8"))
    ]
    if not found:
        raise ValueError("no rank reported an error")
    return min(found)[1]


def behind(folder: Path) -> int:
    """The rank with the fewest calls."""
    return int(calls_in(folder).groupby("rank")["number"].max().idxmin())


def line_of(folder: Path, number: int, rank: int) -> int:
    """The line of a rank's call."""
    calls = calls_in(folder)
    (line,) = calls.loc[(calls["number"] == number) & (calls["rank"] == rank), "line"]
    return int(re.search(r"\((\d+)\)", line)[1])


def parted(folder: Path) -> int:
    """The number of the first call that is not on the same line everywhere."""
    lines = calls_in(folder).groupby("number")["line"].nunique()
    return int(lines[lines > 1].index[0])


def others(folder: Path) -> int:
    """A rank that waits."""
    return int(calls_in(folder).groupby("rank")["number"].max().idxmax())


def last(folder: Path) -> int:
    """The number of the last call that anybody made."""
    return int(calls_in(folder)["number"].max())


def left_out(folder: Path) -> tuple[int, int]:
    """The rank that is behind, and the line of the call that it left out."""
    return behind(folder), line_of(folder, parted(folder), others(folder))


def left_out_problem(answer: Any, folder: Path) -> str | None:
    """What is wrong with a rank and a line; None if both are right."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return "A pair is asked: a rank, and a line."
    (rank, line), (missing, wanted) = answer, left_out(folder)
    if rank == first_to_complain(folder) != missing:
        return f"Rank {rank} complained first, since it waits. Whose row of calls is shorter?"
    if rank != missing:
        return (
            f"Rank {rank} is not missing: it made all calls and waits. Whose row of calls is"
            " shorter?"
        )
    if line == line_of(folder, last(folder), others(folder)):
        return "There they wait. The ranks are on different lines since an earlier call."
    if line == line_of(folder, parted(folder), rank):
        return (
            f"That is what rank {rank} called instead, in the place of the call that it left out."
        )
    return (
        None
        if line == wanted
        else "Go through the columns from the left: where are the lines not all the same?"
    )


def odd_one(folder: Path) -> int:
    """The rank whose last collective has another name than those of most. Raises ValueError if
    there is none.
    """
    last = calls_in(folder).drop_duplicates("rank", keep="last")
    counts = last["call"].value_counts()
    if len(counts) < 2:
        raise ValueError("all ranks call the same in the end")
    return int(last.loc[last["call"] == counts.index[-1], "rank"].iloc[0])


def cause_problem(answer: Any, folder: Path) -> str | None:
    """What is wrong with a rank and a cause; None if both are right."""
    if not isinstance(answer, tuple | list) or len(answer) != 2 or answer[1] not in CAUSES:
        return f"A pair is asked: a rank, and one of {', '.join(CAUSES)}."
    if answer[0] == first_to_complain(folder) != odd_one(folder):
        return (
            f"Rank {answer[0]} complained first. It makes the same calls as most ranks: it waits."
        )
    if answer[0] != odd_one(folder):
        return (
            f"Rank {answer[0]} makes the same calls as most ranks. Which row of the table differs?"
        )
    return None if answer[1] == FEWER else AGAINST[answer[1]]


def wait_s(calls: pd.DataFrame) -> float:
    """Seconds between the first and the last rank in the last call that all made."""
    times = calls[calls["number"] == calls["number"].max()]["called_ns"]
    return float(times.max() - times.min()) / 1e9


def limit_s(calls: pd.DataFrame) -> float:
    """The time-out of the last call."""
    return float(calls["timeout_ms"].iloc[-1]) / 1e3


EXERCISES = (
    Exercise(
        id="15.1",
        answer=Property(left_out_problem, left_out),
        mistakes=(
            Mistake(
                lambda folder: (first_to_complain(folder), left_out(folder)[1]), "complained first"
            ),
            Mistake(lambda folder: (2, left_out(folder)[1]), "made all calls"),
            Mistake(
                lambda folder: (behind(folder), line_of(folder, last(folder), others(folder))),
                "There they wait",
            ),
            Mistake(
                lambda folder: (behind(folder), line_of(folder, parted(folder), behind(folder))),
                "called instead",
            ),
            Mistake(lambda folder: (behind(folder), 1), "Go through the columns"),
            Mistake(behind, "A pair is asked"),
        ),
        hints=(
            "The others can't go on without the rank that has fewer calls.",
            (
                "Go through the columns from the left. Which is the first whose lines are not all"
                " the same?"
            ),
            "In that column: the line that the waiting ranks have.",
        ),
        insight=(
            "That rank had ended without an error, and long before: its log is the one that nobody"
            " opens. The library paired the call with its next one, of the same size: wrong sums,"
            " and no error."
        ),
    ),
    Exercise(
        id="15.2",
        answer=Number(lambda calls: int(wait_s(calls)) + 1, unit="s", relative=0),
        mistakes=(
            Mistake(limit_s, "That is the time-out that it had."),
            Mistake(
                lambda calls: int(wait_s(calls) - limit_s(calls)) + 1,
                "That is what was lacking, to be added to the time-out that it had.",
            ),
            Mistake(
                lambda calls: int(wait_s(calls)),
                "Just too short: rank 1 came a little later than that.",
            ),
        ),
        hints=(
            "Take the rows of call 2: the latest `called_ns` less the earliest, in seconds.",
            "Round up: a time-out just below it ends the job.",
        ),
        insight=(
            "Checkpoints, first compilations and validation on one rank are the usual good reasons"
            " to be late."
        ),
    ),
    Exercise(
        id="15.3",
        answer=Property(cause_problem, lambda folder: (odd_one(folder), FEWER)),
        mistakes=(
            Mistake(lambda folder: (first_to_complain(folder), FEWER), "complained first"),
            Mistake(lambda folder: (0, FEWER), "Which row of the table differs?"),
            Mistake(lambda folder: (odd_one(folder), LATE), "All ranks made call 4"),
            Mistake(lambda folder: (odd_one(folder), DEAD), "reported a time-out itself"),
            Mistake(lambda folder: (odd_one(folder), SIZE), "not the same call"),
            Mistake(odd_one, "A pair is asked"),
        ),
        hints=(
            "One row differs in one column.",
            "That rank left the loop of `all_reduce` one call before the others.",
        ),
        insight=(
            "A sampler that gives all ranks the same number of batches cures it (`drop_last`, or"
            " DDP's `join`), not a longer time-out."
        ),
    ),
)
