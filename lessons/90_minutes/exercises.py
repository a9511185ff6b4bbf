"""Exercise of the ninety minutes: what slows down sort_letters.py of lesson 14?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from proflab.exercises import Exercise, Mistake, Number, Property

PART, FUNCTION = "data", "numbers_of"

NO_PAIR = "Answer with a pair of strings: the part and the function, as in `part, function`."
OTHER_PART = (
    "Your part isn't the cause. Look for the work that every epoch repeats, although its result"
    " never changes."
)
CALLER = (
    "`__getitem__` only calls the function that does the work. Name the function that `__getitem__`"
    " calls."
)
OTHER_FUNCTION = "Your function doesn't do the repeated work. Start at `Letters.__getitem__`."


def cause_problem(answer: Any, script: Any) -> str | None:
    """Return what is wrong with a pair of part and function, or None."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return NO_PAIR
    part, function = (str(word).strip().strip("()`").casefold() for word in answer)
    if part != PART:
        return OTHER_PART
    if FUNCTION in function:
        return None
    return CALLER if "__getitem__" in function else OTHER_FUNCTION


def change_percent(rounds: pd.DataFrame) -> float:
    """Return the change of the mean step time over all rounds in percent."""
    return float(100 * (rounds["fixed_ms"].mean() / rounds["before_ms"].mean() - 1))


EXERCISES = (
    Exercise(
        id="90.1",
        answer=Property(cause_problem, lambda script: (PART, FUNCTION)),
        mistakes=(
            Mistake(lambda script: FUNCTION, NO_PAIR),
            Mistake(lambda script: ("forward", FUNCTION), OTHER_PART),
            Mistake(lambda script: (PART, "__getitem__"), CALLER),
            Mistake(lambda script: (PART, "fit"), OTHER_FUNCTION),
        ),
        hints=(
            "Read the *Why* and *Next* lines of the report. If the report is inconclusive, find the"
            " work that every epoch repeats.",
            "Move the call to `numbers_of` from `__getitem__` to `__init__`.",
        ),
        insight=(
            "The script processes every letter again in each epoch. If the script processes each"
            " letter only once, before training, the data wait disappears."
        ),
    ),
    Exercise(
        id="90.2",
        measured=True,
        answer=Number(change_percent, unit="%"),
        mistakes=(
            Mistake(
                lambda rounds: 100 * (1 - rounds["before_ms"].mean() / rounds["fixed_ms"].mean()),
                "You divided by the time after the fix. Divide by the time before it.",
            ),
            Mistake(
                lambda rounds: 100 * ((rounds["fixed_ms"] / rounds["before_ms"]).mean() - 1),
                "You averaged the changes of the rounds. Average the step times first.",
            ),
        ),
        hints=(
            "Compare the means of the columns `before_ms` and `fixed_ms`.",
            'Compute `rounds["fixed_ms"].mean() / rounds["before_ms"].mean()`, and subtract 1.',
        ),
        insight=(
            "All rounds agree about which version is faster, so chance doesn't explain the"
            " difference. `tidyprof gate` adds the confidence interval."
        ),
    ),
)
