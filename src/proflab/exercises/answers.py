"""Kinds of answers: how each finds what is right and judges what a learner gave.

`right(data)` computes what is right; `judge(answer, right, data)` returns None for a right answer,
else a sentence that says what is wrong with it; `same` tells whether a wrong answer is a known one.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proflab.display import number, quoted
from proflab.exercises.units import unit_hint


class Kind(Protocol):
    """What an exercise needs from its kind of answer."""

    def right(self, data: Any) -> Any:
        """A right answer for this data."""

    def judge(self, answer: Any, right: Any, data: Any) -> str | None:
        """None if `answer` is right, else one sentence about it."""

    def same(self, answer: Any, known: Any) -> bool:
        """Whether two answers count as the same one."""


@dataclass(frozen=True)
class Number:
    """One number, right within `relative` (a fraction) or `absolute` (in `unit`) of what `expected(data)` computes.

    `unit` is shown and used for hints: see `units.unit_hint`.
    """

    expected: Callable[[Any], float]
    unit: str = ""
    relative: float = 0.01
    absolute: float = 0.0

    def right(self, data: Any) -> float:
        """The expected number; raises ValueError if the data gives none."""
        value = float(self.expected(data))
        if not math.isfinite(value):
            raise ValueError(f"the data gives {value} as the expected answer")
        return value

    def judge(self, answer: Any, right: float, data: Any) -> str | None:
        """None within the tolerance, else what the number is not and what the distance hints at."""
        value = as_number(answer, self.unit)
        if isinstance(value, str):
            return value
        if self._close(value, right):
            return None
        hint = unit_hint(value, right, self.unit)
        direction = f"{number(value)} is too {'big' if value > right else 'small'}."
        return hint or direction

    def same(self, answer: Any, known: Any) -> bool:
        """Equal within this exercise's tolerance."""
        value, other = as_number(answer, self.unit), as_number(known, self.unit)
        return not isinstance(value, str) and not isinstance(other, str) and self._close(value, other)

    def _close(self, value: float, right: float) -> bool:
        return abs(value - right) <= max(self.relative * abs(right), self.absolute)


@dataclass(frozen=True)
class Address(Number):
    """An address, also as a text such as "0x1954". None is too big or too small: it is another place."""

    relative: float = 0.0

    def judge(self, answer: Any, right: float, data: Any) -> str | None:
        """None if it is the address, else what was asked or that it is another one."""
        value = as_number(_from_hexadecimal(answer), self.unit)
        if isinstance(value, str):
            return f'An address is asked, as a number or a text such as "0x1a2b". {value}'
        return None if self._close(value, right) else f"{int(value):#x} is another place."

    def same(self, answer: Any, known: Any) -> bool:
        """Whether two addresses are the same, however they are written."""
        return super().same(_from_hexadecimal(answer), _from_hexadecimal(known))


def _from_hexadecimal(answer: Any) -> Any:
    """The number that a hexadecimal text means; other answers as they are."""
    try:
        return int(answer, 16) if isinstance(answer, str) and answer.strip().lower().startswith("0x") else answer
    except ValueError:
        return answer


@dataclass(frozen=True)
class Text:
    """A word or name; upper and lower case and spaces don't matter.

    `expected(data)` gives the right text, or several of which each is right, the first being shown.
    """

    expected: Callable[[Any], str | Sequence[str]]

    def right(self, data: Any) -> tuple[str, ...]:
        """All accepted texts."""
        found = self.expected(data)
        return (found,) if isinstance(found, str) else tuple(found)

    def judge(self, answer: Any, right: Any, data: Any) -> str | None:
        """None if the answer is one of the accepted texts."""
        if not isinstance(answer, str):
            return f"A text is asked, {_but(answer)}"
        accepted = (right,) if isinstance(right, str) else right
        return None if _plain(answer) in map(_plain, accepted) else f"It is not {quoted(answer)}."

    def same(self, answer: Any, known: Any) -> bool:
        """Equal but for case and spaces."""
        return isinstance(answer, str) and isinstance(known, str) and _plain(answer) == _plain(known)


@dataclass(frozen=True)
class Property:
    """Any answer with a property: `check(answer, data)` returns None or True if it has it, else what is wrong.

    `example(data)` gives one right answer, for the self-test.
    """

    check: Callable[[Any, Any], str | bool | None]
    example: Callable[[Any], Any]

    def right(self, data: Any) -> Any:
        """One right answer of many."""
        return self.example(data)

    def judge(self, answer: Any, right: Any, data: Any) -> str | None:
        """What `check` says."""
        verdict = self.check(answer, data)
        if verdict is None or verdict is True:
            return None
        return verdict if isinstance(verdict, str) else "It does not have the property that is asked."

    def same(self, answer: Any, known: Any) -> bool:
        """Never: the check itself has to know the mistakes."""
        return False


def as_number(answer: Any, unit: str = "") -> float | str:
    """The answer as a finite float, or a sentence why it is none. One-element arrays and number texts count."""
    if hasattr(answer, "shape") and hasattr(answer, "item"):
        count = math.prod(answer.shape)
        if count != 1:
            return f"One number is asked, {_but(answer)[:-1]} with {count} values."
        answer = answer.item()
    if isinstance(answer, str):
        return _from_text(answer, unit)
    if isinstance(answer, bool) or not isinstance(answer, numbers.Real):
        return f"A number is asked, {_but(answer)}"
    value = float(answer)
    if not math.isfinite(value):
        return f"{value} is no number to work with: was something missing, or divided by zero?"
    return value


def _from_text(answer: str, unit: str) -> float | str:
    try:
        value = float(answer.strip())
    except ValueError:
        wanted = f" in {unit}" if unit else ""
        return f"A bare number{wanted} is asked, this is the text {quoted(answer)}."
    return value if math.isfinite(value) else f"{quoted(answer)} is no number to work with."


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _but(answer: Any) -> str:
    """The end of a sentence about an answer of the wrong type."""
    if answer is None:
        return "and the answer is None: was it assigned?"
    name = type(answer).__name__
    return f"this is {'an' if name[0] in 'aeiou' else 'a'} {name}."
