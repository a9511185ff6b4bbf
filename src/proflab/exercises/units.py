"""What a wrong number says about the mistake: a unit, a sign, an inverted ratio."""

from __future__ import annotations

import math

_TIME = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_BYTES = {
    **{"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    **{"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
}
_SHARE = {"fraction": 1.0, "percent": 0.01}
_FAMILIES = (_TIME, _BYTES, _SHARE)
_ALIASES = {"µs": "us", "μs": "us", "%": "percent", "KB": "kB"}

_WORDS = {100.0: "a hundred times", 1e3: "a thousand times", 1e6: "a million times", 1e9: "a billion times"}

_CLOSE = 0.02
"""How near to a unit's factor a ratio must be, relative; less than what separates MB from MiB (0.049)."""


def unit_hint(answer: float, expected: float, unit: str) -> str | None:
    """A likely cause for the distance between two numbers, or None.

    `unit` is that of `expected`: a time (ns, us, ms, s), a size (B, kB, MiB, ...), `fraction`,
    `percent`, `ratio`, or any of these per something (`GB/s`); "" for a plain count.
    """
    if answer == 0 or expected == 0:
        return None
    ratio = answer / expected
    if _near(ratio, -1.0):
        return "The size is right, the sign is not: what was subtracted from what?"
    return _other_unit(ratio, unit) or _other_side(answer, expected, unit) or _power_of_thousand(ratio, unit)


def _other_unit(ratio: float, unit: str) -> str | None:
    numerator, slash, rest = unit.partition("/")
    numerator = _ALIASES.get(numerator, numerator)
    for family in _FAMILIES:
        if numerator not in family:
            continue
        for other, scale in family.items():
            if other != numerator and _near(ratio, family[numerator] / scale):
                return f"{_phrase(ratio)}This looks like {other}{slash}{rest}; {unit} is asked."
    return None


def _other_side(answer: float, expected: float, unit: str) -> str | None:
    whole = {"fraction": 1.0, "percent": 100.0}.get(_ALIASES.get(unit, unit))
    if whole is not None and _near(answer, whole - expected):
        return "This is the rest: the share of everything else."
    if unit == "ratio" and _near(answer * expected, 1.0):
        return "This is upside down: what is divided by what?"
    return None


def _power_of_thousand(ratio: float, unit: str) -> str | None:
    if unit and any(_near(ratio, factor) or _near(ratio, 1 / factor) for factor in _WORDS if factor != 100.0):
        return f"{_phrase(ratio)}Check the units of what you combined; {unit} is asked."
    return None


def _phrase(ratio: float) -> str:
    """How far the answer is off, where that is a round factor; nothing else, so that one sentence is left."""
    size = max(ratio, 1 / ratio)
    for factor, words in _WORDS.items():
        if _near(size, factor):
            return f"This is {words} too {'big' if ratio > 1 else 'small'}. "
    return ""


def _near(value: float, target: float) -> bool:
    return math.isclose(value, target, rel_tol=_CLOSE)
