"""Exercises of lesson 15: dumps that gloo's flight recorder wrote, and the output of the ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

LATE, DEAD, FEWER, SIZE = CAUSES = (
    "it came late",
    "it is dead",
    "it has fewer batches",
    "its batch has a different size",
)

AGAINST = {
    LATE: "All ranks made call 4 at almost the same time, so none came late. Compare what they"
    " called.",
    DEAD: "This rank left a dump with four calls and reported a timeout, so it was alive. Compare"
    " what the ranks called.",
    SIZE: "Calls 1 to 3 have the same size on all ranks, and call 4 isn't the same collective."
    " Compare the names of the calls.",
}
"""The evidence against each other cause."""


def lines_in(folder: Path) -> pd.DataFrame:
    """Return the line of each call, with a row per rank and a column per call."""
    calls = tidyprof.read_flight_recorder(folder)
    line = calls["line"].str.extract(r"\((\d+)\)")[0].astype(int)
    return calls.assign(line=line).pivot(index="rank", columns="number", values="line")


def first_to_report(folder: Path) -> int:
    """Return the rank that reported an error first."""
    texts = {file: file.read_text(encoding="utf-8") for file in folder.glob("log_*.txt")}
    times = {file: float(text.split()[0]) for file, text in texts.items() if " says: " in text}
    return int(min(times, key=times.__getitem__).stem.removeprefix("log_"))


def places(folder: Path) -> dict[str, int]:
    """Return the rank that is behind, one that waits, and the lines that the exercise is about."""
    lines = lines_in(folder)
    missing, waits = (int(rank) for rank in lines.count(axis=1).agg(["idxmin", "idxmax"]))
    parted = lines.columns[lines.nunique() > 1][0]
    return {
        "missing": missing,
        "waits": waits,
        "skipped": int(lines[parted][waits]),
        "instead": int(lines[parted][missing]),
        "last": int(lines.iloc[:, -1][waits]),
    }


def skipped_call(folder: Path) -> tuple[int, int]:
    """Return the rank that is behind and the line of the call that it skipped."""
    found = places(folder)
    return found["missing"], found["skipped"]


def rank_problem(rank: Any, first: int, reason: str) -> str:
    """Return the reply to a wrong rank."""
    reported = " reported an error first because it" if rank == first else ""
    return f"Rank {rank}{reported} waits for another rank. {reason}"


def not_a_rank(rank: Any, folder: Path, then: str) -> str | None:
    """Return what is wrong with something that isn't a rank of the job, or None."""
    ranks = lines_in(folder).index
    wanted = f"Write a number from 0 to {ranks.max()} first, then {then}."
    if isinstance(rank, str):
        return f"{rank!r} is a string, not a rank. {wanted}"
    return None if rank in ranks else f"{rank} isn't a rank. {wanted}"


def skipped_problem(answer: Any, folder: Path) -> str | None:
    """Return what is wrong with a rank and a line, or None if both are right."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return "Answer with a pair that contains a rank and a line."
    (rank, line), found = answer, places(folder)
    if problem := not_a_rank(rank, folder, "the line"):
        return problem
    if isinstance(line, str):
        return f"{line!r} is a string, not a line number. Write it without quotes."
    if rank != found["missing"]:
        return rank_problem(rank, first_to_report(folder), "Find the row with fewer calls.")
    if line == found["skipped"]:
        return None
    return {
        found["last"]: "You chose the line where the ranks wait, but their lines already differ at"
        " an earlier call. Choose the line of that call.",
        found["instead"]: f"You chose the line that rank {rank} called instead. Use the line that"
        " the other ranks have in that column.",
    }.get(line, "This isn't the skipped call. Find the first column whose lines differ.")


def odd_one(folder: Path) -> int:
    """Return the rank whose last call has another name than the others'."""
    last = (
        tidyprof.read_flight_recorder(folder)
        .drop_duplicates("rank", keep="last")
        .set_index("rank")["call"]
    )
    return int(last.index[last == last.value_counts().index[-1]][0])


def cause_problem(answer: Any, folder: Path) -> str | None:
    """Return what is wrong with a rank and a cause, or None if both are right."""
    if not isinstance(answer, tuple | list) or len(answer) != 2 or answer[1] not in CAUSES:
        return f"Answer with a pair: a rank and one of {', '.join(CAUSES)}."
    if problem := not_a_rank(answer[0], folder, "the reason"):
        return problem
    if answer[0] != odd_one(folder):
        reason = "Find the row of the table that differs from the others."
        return rank_problem(answer[0], first_to_report(folder), reason)
    return AGAINST.get(answer[1])


def wait_s(calls: pd.DataFrame, extra: float = 0) -> float:
    """Return the seconds from the first to the last rank in the last call, and `extra` timeouts."""
    last = calls[calls["number"] == calls["number"].max()]
    delay = last["called_ns"].max() - last["called_ns"].min()
    return float(delay) / 1e9 + extra * float(last["timeout_ms"].iloc[0]) / 1e3


EXERCISES = (
    Exercise(
        id="15.1",
        answer=Property(skipped_problem, skipped_call),
        mistakes=(
            Mistake(
                lambda folder: (first_to_report(folder), places(folder)["skipped"]),
                "reported an error first",
            ),
            Mistake(
                lambda folder: (places(folder)["missing"], places(folder)["last"]),
                "the line where the ranks wait",
            ),
            Mistake(
                lambda folder: (places(folder)["missing"], places(folder)["instead"]),
                "called instead",
            ),
            Mistake(lambda folder: tuple(map(str, skipped_call(folder))), "is a string"),
            Mistake(lambda folder: skipped_call(folder)[::-1], "isn't a rank"),
        ),
        hints=(
            "Find the rank with fewer calls. The others can't continue without it.",
            "Go through the columns from left to right. Find the first whose lines differ.",
            "In that column, use the line that the waiting ranks have.",
        ),
        insight=(
            "That rank had finished long before, without an error, so its log is the one that"
            " nobody opens. The library matched the skipped call with the rank's next call, which"
            " had the same size. Therefore, the sums were wrong, but no rank raised an error."
        ),
    ),
    Exercise(
        id="15.2",
        answer=Number(lambda calls: int(wait_s(calls)) + 1, unit="s", relative=0),
        mistakes=(
            Mistake(
                lambda calls: int(calls["timeout_ms"].iloc[-1] / 1e3),
                "You gave the timeout that the job had. It was too short for rank 1.",
            ),
            Mistake(
                lambda calls: int(wait_s(calls, -1)) + 1,
                "You gave only the time by which the timeout was too short. Add it to the timeout"
                " that the job had.",
            ),
            Mistake(wait_s, "You gave the exact delay. Round it up to whole seconds."),
            Mistake(
                lambda calls: int(wait_s(calls, 1)) + 1,
                "You added the timeout to the delay. The timeout only has to exceed the delay.",
            ),
            Mistake(
                lambda calls: int(wait_s(calls)),
                "You rounded down, so rank 1 would come a moment too late. Round up.",
            ),
        ),
        hints=(
            "In the rows of call 2, subtract the earliest `called_ns` from the latest, in seconds.",
            "Round up, because a timeout just below this delay still ends the job.",
        ),
        insight=(
            "A rank may be late for a good reason, such as a checkpoint, a first compilation or"
            " validation on one rank."
        ),
    ),
    Exercise(
        id="15.3",
        answer=Property(cause_problem, lambda folder: (odd_one(folder), FEWER)),
        mistakes=(
            Mistake(lambda folder: (first_to_report(folder), FEWER), "reported an error first"),
            *(
                Mistake(lambda folder, cause=cause: (odd_one(folder), cause), reply)
                for cause, reply in AGAINST.items()
            ),
        ),
        hints=(
            "Find the row that differs from the others in one column.",
            "That rank left the loop of `all_reduce` one call before the others.",
        ),
        insight=(
            "Give all ranks the same number of batches, for example with `drop_last` or DDP's"
            " `join`. A longer timeout wouldn't help."
        ),
    ),
)
