"""Kinds of answers: how each finds the right answer and judges a learner's, including units, signs
and ratios.

`right(data)` computes the right answer; `judge(answer, right, data)` returns None for a right
answer, else a sentence on what is wrong with it; `same` tells whether a wrong answer is a known
one.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proflab.display import number, quoted

_FAMILIES = (
    {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    {
        **{unit: 1e3**place for place, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
        **{unit: 2.0 ** (10 * place) for place, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
    },
    {"fraction": 1.0, "percent": 0.01},
)
_ALIASES = {"µs": "us", "μs": "us", "%": "percent", "KB": "kB"}
_WHOLE = {"fraction": 1.0, "percent": 100.0}
_TIMES = {100.0: "a hundred", 1e3: "a thousand", 1e6: "a million", 1e9: "a billion"}

_CLOSE = 0.02
"""Largest relative distance of a ratio from a unit's factor; less than the distance of MB from MiB
(0.049).
"""


def unit_hint(answer: float, expected: float, unit: str) -> str | None:
    """Return a likely cause of the difference of two numbers, or None.

    `unit` is the unit of `expected`: a time (ns, us, ms, s), a size (B, kB, MiB, ...), `fraction`,
    `percent`, `ratio`, or any of these per something (`GB/s`); "" for a plain count.
    """
    if answer == 0 or expected == 0:
        return None
    ratio = answer / expected
    if _near(ratio, -1.0):
        return "The size is right, the sign is not: what was subtracted from what?"
    size = max(ratio, 1 / ratio)
    times = next((words for factor, words in _TIMES.items() if _near(size, factor)), "")
    # How far off the answer is, if by a round factor; otherwise only the next sentence is said.
    off = f"This is {times} times too {'big' if ratio > 1 else 'small'}. " if times else ""
    numerator, slash, rest = unit.partition("/")
    numerator = _ALIASES.get(numerator, numerator)
    family = next((one for one in _FAMILIES if numerator in one), {})
    for other, scale in family.items():
        if other != numerator and _near(ratio, family[numerator] / scale):
            return f"{off}This looks like {other}{slash}{rest}; {unit} is asked."
    if numerator in _WHOLE and not slash and _near(answer, _WHOLE[numerator] - expected):
        return "This is the rest: the share of everything else."
    if unit == "ratio" and _near(answer * expected, 1.0):
        return "This is upside down: what is divided by what?"
    if unit and times and not _near(size, 100.0):
        return f"{off}Check the units of what you combined; {unit} is asked."
    return None


def _near(value: float, target: float) -> bool:
    return math.isclose(value, target, rel_tol=_CLOSE)


@dataclass(frozen=True)
class Number:
    """One number, right if within `relative` (a fraction) or `absolute` (in `unit`) of
    `expected(data)`.

    `unit` is shown and used for hints: see `unit_hint`.
    """

    expected: Callable[[Any], float]
    unit: str = ""
    relative: float = 0.01
    absolute: float = 0.0

    def right(self, data: Any) -> float:
        """The expected number; raises ValueError if the data gives no finite number."""
        value = float(self.expected(data))
        if not math.isfinite(value):
            raise ValueError(f"the data gives {value} as the expected answer")
        return value

    def judge(self, answer: Any, right: float, data: Any) -> str | None:
        """None within the tolerance, else a hint on the likely cause, or whether the number is too
        big or too small.
        """
        value = as_number(answer, self.unit)
        if isinstance(value, str):
            return value
        if self._close(value, right):
            return None
        hint = unit_hint(value, right, self.unit)
        direction = f"{number(value)} is too {'big' if value > right else 'small'}."
        return hint or direction

    def same(self, answer: Any, known: Any) -> bool:
        """Whether they are equal within this exercise's tolerance."""
        value, other = as_number(answer, self.unit), as_number(known, self.unit)
        return not isinstance(value, str) and self._close(value, other)

    def _close(self, value: float, right: float) -> bool:
        return abs(value - right) <= max(self.relative * abs(right), self.absolute)


@dataclass(frozen=True)
class Text:
    """A word or name; upper and lower case and spaces don't matter.

    `expected(data)` gives the right text, or several right texts, of which the first is shown. If
    an exercise offers `choices`, an answer that is none of them is taken for misspelt, not for
    wrong.
    """

    expected: Callable[[Any], str | Sequence[str]]
    choices: Sequence[str] = ()

    def right(self, data: Any) -> tuple[str, ...]:
        """All accepted texts."""
        found = self.expected(data)
        return (found,) if isinstance(found, str) else tuple(found)

    def judge(self, answer: Any, right: Any, data: Any) -> str | None:
        """None if the answer is one of the accepted texts."""
        if not isinstance(answer, str):
            return f"A text is asked, {_but(answer)}"
        accepted = (right,) if isinstance(right, str) else right
        if _plain(answer) in map(_plain, accepted):
            return None
        if self.choices and _plain(answer) not in map(_plain, self.choices):
            return f"Write one of these as it stands: {'; '.join(self.choices)}."
        return f"It is not {quoted(answer)}."

    def same(self, answer: Any, known: Any) -> bool:
        """Whether they are equal but for case and spaces."""
        return (
            isinstance(answer, str) and isinstance(known, str) and _plain(answer) == _plain(known)
        )


@dataclass(frozen=True)
class Property:
    """Any answer with a property: `check(answer, data)` returns None or True if the answer has it,
    else a sentence on what is wrong.

    `example(data)` gives a right answer, for the self-test.
    """

    check: Callable[[Any, Any], str | bool | None]
    example: Callable[[Any], Any]

    def right(self, data: Any) -> Any:
        """One right answer of many."""
        return self.example(data)

    def judge(self, answer: Any, right: Any, data: Any) -> str | None:
        """None, or the sentence of `check`."""
        verdict = self.check(answer, data)
        wrong = "It does not have the property that is asked."
        return verdict if isinstance(verdict, str) else wrong if verdict is False else None

    def same(self, answer: Any, known: Any) -> bool:
        """Never: `check` itself has to know the mistakes."""
        return False


def as_number(answer: Any, unit: str = "") -> float | str:
    """Return the answer as a finite float, or a sentence on why it is none. Arrays of one element
    and strings of a number count, too.
    """
    if hasattr(answer, "shape") and hasattr(answer, "item"):
        if math.prod(answer.shape) != 1:
            return (
                f"One number is asked, {_but(answer)[:-1]} with {math.prod(answer.shape)} values."
            )
        answer = answer.item()
    if isinstance(answer, str):
        try:
            answer = float(answer.strip())
        except ValueError:
            wanted = f" in {unit}" if unit else ""
            return f"A bare number{wanted} is asked, this is the text {quoted(answer)}."
    if isinstance(answer, bool) or not isinstance(answer, numbers.Real):
        return f"A number is asked, {_but(answer)}"
    value = float(answer)
    if not math.isfinite(value):
        return f"{value} is no number to work with: was something missing, or divided by zero?"
    return value


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _but(answer: Any) -> str:
    """The end of a sentence about an answer of the wrong type."""
    if answer is None:
        return "and the answer is None: was it assigned?"
    name = type(answer).__name__
    return f"this is {'an' if name[0] in 'aeiou' else 'a'} {name}."
