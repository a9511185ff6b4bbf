"""Kinds of answers. Each kind computes the right answer and evaluates a learner's answer.

- right(data): computes the right answer.
- judge(answer, right, data): returns None for a right answer, or a sentence that explains the
  error.
- same: compares a wrong answer with a known mistake.
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
_ALIASES = {"µs": "us", "μs": "us", "%": "percent", "KB": "kB", "times": "ratio"}
_WHOLE = {"fraction": 1.0, "percent": 100.0}
_AS = {"fraction": "a fraction", "percent": "a percentage"}
"""Names of units in sentences. A unit that isn't listed is written as it is."""

_TIMES = {100.0: "a hundred", 1e3: "a thousand", 1e6: "a million", 1e9: "a billion"}

_CLOSE = 0.02
"""Largest relative difference between a ratio and a unit conversion factor.

The limit is less than the difference between MB and MiB (0.049).
"""

_EQUAL = 1e-3
"""Largest relative difference between an answer and a known wrong value.

The limit allows for an answer rounded to four digits. The limit is also small enough that a
different mistake rarely produces a matching value.
"""


def likely_mistake(answer: float, expected: float, unit: str) -> str | None:
    """Return a sentence that explains the learner's likely mistake and suggests a fix, or None.

    `unit` is the unit of `expected`:

    - a time (ns, us, ms, s)
    - a size (B, kB, MiB, ...)
    - `fraction`, `percent` or `times`
    - a rate with any of these units (`GB/s`)
    - "" for a plain count
    """
    if answer == 0 or expected == 0:
        return None
    ratio = answer / expected
    if _near(ratio, -1.0):
        return "The magnitude is right, but the sign is wrong. Check the order of your subtraction."
    numerator, slash, rest = unit.partition("/")
    numerator = _ALIASES.get(numerator, numerator)
    family = next((one for one in _FAMILIES if numerator in one), {})
    for other, scale in family.items():
        if other != numerator and _near(ratio, family[numerator] / scale):
            wanted = f"but the question asks for {_AS.get(unit, unit)}. Convert your answer."
            return f"You gave {_AS.get(other, other)}{slash}{rest}, {wanted}"
    for value, message in _slips(expected, numerator if not slash else ""):
        if same_value(answer, value):
            return message
    if any(answer == float(f"{expected:.{digits}g}") for digits in (1, 2, 3)):
        return "You rounded your answer too much. Give more digits."
    size = max(ratio, 1 / ratio)
    times = next((words for factor, words in _TIMES.items() if _near(size, factor)), "")
    if unit and times:
        off = f"Your answer is {times} times too {'large' if ratio > 1 else 'small'}."
        return f"{off} Check the units of all values in your calculation."
    return None


def _slips(expected: float, unit: str) -> list[tuple[float, str]]:
    """Return likely wrong values for an answer with this unit, each with a message."""
    whole = _WHOLE.get(unit, 1.0)
    inverse = "You computed the inverse. Swap the two numbers in your division."
    found = [(whole**2 / expected, inverse)]
    if unit in _WHOLE:
        rest = "You computed the remaining share. Subtract your answer from {}."
        found.append((whole - expected, rest.format("100%" if whole > 1 else "1")))
    if unit == "ratio":
        asked = "but the question asks for a factor, such as 2 for a doubling."
        found += [
            (100 * expected, f"You gave a percentage, {asked}"),
            (100 * (expected - 1), f"You gave the increase in percent, {asked}"),
            (expected - 1, f"You gave the increase, {asked}"),
            (100 * (1 - 1 / expected), f"You gave the saved share in percent, {asked}"),
        ]
    return found


def same_value(answer: float, value: float) -> bool:
    """Return True if the answer equals this value, either exactly or rounded to at least four
    digits.
    """
    return math.isclose(answer, value, rel_tol=_EQUAL)


def _near(value: float, target: float) -> bool:
    return math.isclose(value, target, rel_tol=_CLOSE)


@dataclass(frozen=True)
class Number:
    """Numeric answer that must be close to `expected(data)`.

    The tolerance is either `relative` (a fraction) or `absolute` (in `unit`). Messages show
    `unit`, and `likely_mistake` uses `unit` to explain wrong answers.
    """

    expected: Callable[[Any], float]
    unit: str = ""
    relative: float = 0.01
    absolute: float = 0.0

    def right(self, data: Any) -> float:
        """Return the expected number. Raises ValueError if the number isn't finite."""
        value = float(self.expected(data))
        if not math.isfinite(value):
            raise ValueError(f"the expected answer isn't finite: {value}")
        return value

    def judge(self, answer: Any, right: float, data: Any) -> str | None:
        """Return None for an answer within the tolerance, or a sentence about the error."""
        value = as_number(answer, self.unit)
        if isinstance(value, str):
            return value
        if self._close(value, right):
            return None
        direction = f"{number(value)} is too {'large' if value > right else 'small'}."
        return likely_mistake(value, right, self.unit) or direction

    def same(self, answer: Any, known: Any) -> bool:
        """Return True if this known mistake can explain the answer."""
        value, other = as_number(answer, self.unit), as_number(known, self.unit)
        return not isinstance(value, str) and same_value(value, other)

    def _close(self, value: float, right: float) -> bool:
        return abs(value - right) <= max(self.relative * abs(right), self.absolute)


@dataclass(frozen=True)
class Text:
    """Word or name. Case and spaces don't matter.

    `expected(data)` returns one or more accepted strings, and messages show the first string. If
    an exercise has `choices`, any other answer counts as misspelled.
    """

    expected: Callable[[Any], str | Sequence[str]]
    choices: Sequence[str] = ()

    def right(self, data: Any) -> tuple[str, ...]:
        """Return all accepted strings."""
        found = self.expected(data)
        return (found,) if isinstance(found, str) else tuple(found)

    def judge(self, answer: Any, right: Any, data: Any) -> str | None:
        """Return None if the answer is one of the accepted strings."""
        if not isinstance(answer, str):
            return f"Give a string. {_but(answer)}"
        accepted = (right,) if isinstance(right, str) else right
        if _plain(answer) in map(_plain, accepted):
            return None
        if self.choices and _plain(answer) not in map(_plain, self.choices):
            return f"Copy one of these names: {'; '.join(self.choices)}."
        return f"{quoted(answer)} is not the right answer."

    def same(self, answer: Any, known: Any) -> bool:
        """Return True if the two strings differ only in case and spaces."""
        return (
            isinstance(answer, str) and isinstance(known, str) and _plain(answer) == _plain(known)
        )


@dataclass(frozen=True)
class Property:
    """Answer of any type that must meet a condition.

    - check(answer, data): returns None or True if the answer meets the condition, or a sentence
      that explains the error.
    - example(data): returns a right answer for tests.
    """

    check: Callable[[Any, Any], str | bool | None]
    example: Callable[[Any], Any]

    def right(self, data: Any) -> Any:
        """Return one of the possible right answers."""
        return self.example(data)

    def judge(self, answer: Any, right: Any, data: Any) -> str | None:
        """Return None for a right answer, or the sentence from `check`."""
        verdict = self.check(answer, data)
        wrong = "Your answer doesn't meet the condition in the question."
        return verdict if isinstance(verdict, str) else wrong if verdict is False else None

    def same(self, answer: Any, known: Any) -> bool:
        """Return False because `check` already recognizes mistakes."""
        return False


def as_number(answer: Any, unit: str = "") -> float | str:
    """Return the answer as a finite float, or a sentence that explains why the answer isn't a
    number.

    Arrays with one element and strings that contain a number are also accepted.
    """
    if hasattr(answer, "shape") and hasattr(answer, "item"):
        if math.prod(answer.shape) != 1:
            return f"Give one number. {_but(answer)[:-1]} with {math.prod(answer.shape)} values."
        answer = answer.item()
    if isinstance(answer, str):
        try:
            answer = float(answer.strip())
        except ValueError:
            wanted = f" in {unit}" if unit and unit != "times" else ""
            return f"Give a bare number{wanted}. Your answer is the string {quoted(answer)}."
    if isinstance(answer, bool) or not isinstance(answer, numbers.Real):
        return f"Give a number. {_but(answer)}"
    value = float(answer)
    if not math.isfinite(value):
        return f"Your answer is {value}. Check your code for a missing value or a division by zero."
    return value


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _but(answer: Any) -> str:
    """Return a sentence that states the type of an invalid answer."""
    if answer is None:
        return "Your answer is None. Did you forget to assign a value?"
    name = type(answer).__name__
    return f"Your answer is {'an' if name[0] in 'aeiou' else 'a'} {name}."
