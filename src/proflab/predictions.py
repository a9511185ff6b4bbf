"""Predictions that learners make before a measurement.

runs/predictions.jsonl stores the predictions, and `reveal` compares each prediction with the
result.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterator
from typing import Any

from proflab import journal
from proflab.display import Notice, Table, number, show
from proflab.sources import stated

FILE = "predictions.jsonl"

ABOUT_RIGHT = 1.15
"""Largest factor between a good prediction and the result. Repeated runs often differ by a similar
factor.
"""

_ASKED: dict[str, tuple[str, str]] = {}
"""Unit and quantity of each prediction that this process requested, by prediction id."""


def predict(id: str, value: float | str, unit: str = "", what: str = "") -> None:
    """Store a prediction under its id, such as "02.a".

    The prediction is a `value` in `unit` for the quantity `what`. Only the last prediction
    before the result appears counts. The function stores nothing for `...` or for an ambiguous
    value, such as a string instead of a number or a fraction instead of a percentage.
    """
    _ASKED[id] = unit, what
    if value is ...:
        text = f"Replace the `...` with your prediction for {what or id}."
        show(Notice("Not predicted yet", text, "open"))
        return
    plain = _as_number(value, unit)
    if doubt := _doubt(value, plain, unit):
        show(Notice("Not stored", f"{doubt} ({what or id})", "open"))
        return
    standing, revealed = _history(id)
    if revealed and standing is not None:
        text = f"You have seen the result, so your prediction stays {_with_unit(standing)}."
        show(Notice("Kept", text, "info"))
        return
    record = {"id": id, "event": "predict", "value": plain, "unit": unit, "what": what}
    journal.append(FILE, record | {"late": revealed})
    text = f"You predict {_with_unit(record)}{f' for {what}' if what else ''}."
    show(Notice("Stored", text, "info"))


def _as_number(value: object, unit: str) -> float | str:
    """Return the value as a number, or as a string if it isn't a number. "65%" counts as a
    number.
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    with contextlib.suppress(ValueError):
        if unit:
            return float(str(value).strip().removesuffix(unit))
    return str(value)


def _doubt(value: object, plain: float | str, unit: str) -> str:
    """Return a message about an impossible or ambiguous prediction, or ""."""
    if unit and (isinstance(plain, str) or not math.isfinite(plain)):
        return f"`{value}` can't be compared with the result. Predict a number in {unit}."
    if unit == "%" and 0 < plain < 1 and not isinstance(value, str):
        percent = number(100 * plain)
        return f'For {percent}%, write {percent}. If you mean less than 1%, write "{value}%".'
    return ""


def reveal(id: str, value: float | str, origin: object = None) -> None:
    """Show the result next to the prediction `id`, in the prediction's unit.

    - origin: source of the result, as a string or an argument of `proflab.source`

    Raises CourseError if the result has lost its origin.
    """
    prediction, _ = _history(id)
    plain = float(value) if isinstance(value, numbers.Real) else str(value)
    # Record the result even without a prediction, so that later predictions count as late.
    journal.append(FILE, {"id": id, "event": "reveal", "value": plain, "origin": stated(origin)})
    if prediction is None:
        unit, what = _ASKED.get(id, ("", ""))
        result = f"{_three_digits(plain)} {unit}".strip()
        text = f"The result{f' for {what}' if what else ''} is {result}. Next time, predict first."
        show(Notice("Not predicted", text, "open"))
        return
    unit = prediction["unit"]
    rows = [
        ("predicted", _with_unit(prediction)),
        ("result", f"{_three_digits(plain)} {unit}".strip()),
        ("verdict", verdict(prediction["value"], plain, unit)),
    ]
    note = "You made this prediction after you saw the result." if prediction["late"] else ""
    title = f"{id}: {prediction['what'] or 'prediction and result'}"
    show(Table(title, ("which", "value"), rows, note))


def verdict(predicted: float | str, result: float | str, unit: str = "") -> str:
    """Return a phrase that compares a prediction with the result. Both are in `unit`."""
    if isinstance(result, str):  # a name, such as a rank number
        same = number(predicted).strip().casefold() == result.strip().casefold()
        return "as predicted" if same else "different"
    if isinstance(predicted, str):
        return "not compared, because only one of the two values is a number"
    if predicted == result:
        return "as predicted"
    factor, side = _times_off(predicted, result), "high" if predicted > result else "low"
    if factor is None:
        off = f"{number(abs(float(predicted - result)))} {unit}".strip()
        return f"{off} too {side}"
    if factor <= ABOUT_RIGHT:
        return "about right"
    return f"too {side} by a factor of {number(float(f'{factor:.2g}'))}"


def _times_off(predicted: float, result: float) -> float | None:
    """Return the larger value divided by the smaller value, or None if their signs differ."""
    if predicted * result <= 0:
        return None
    return float(max(predicted / result, result / predicted))


def show_guesses() -> None:
    """Show all numeric predictions made in time next to their results, with the worst first."""
    rows = []
    for id in dict.fromkeys(record["id"] for record in _records() if record["event"] == "reveal"):
        guess, _ = _history(id)
        found = next(one for one in _records() if (one["id"], one["event"]) == (id, "reveal"))
        if guess is None or guess["late"]:
            continue
        values = (guess["value"], found["value"])
        if any(isinstance(one, str) or not 0 < one < math.inf for one in values):
            continue
        off = _times_off(*values)
        texts = (number(values[0]), _three_digits(values[1]), guess["unit"], _three_digits(off))
        rows.append((off, (id, guess["what"], *texts)))
    if not rows:
        show(
            Notice("No prediction yet", "You didn't make any numeric predictions in time.", "open")
        )
        return
    rows.sort(key=lambda row: -row[0])
    columns = ("id", "what", "predicted", "found", "unit", "times off")
    note = "Your predictions and the results of the lessons"
    right = ("predicted", "found", "times off")
    show(Table("Your predictions", columns, [row for _, row in rows], note, flush_right=right))


def _history(id: str) -> tuple[dict[str, Any] | None, bool]:
    """Return the prediction that counts, if any, and True if the result has been revealed."""
    standing, revealed = None, False
    for record in _records():
        if record["id"] != id:
            continue
        if record["event"] == "reveal":
            revealed = True
        elif standing is None or not revealed:
            standing = record
    return standing, revealed


def _records() -> Iterator[dict[str, Any]]:
    """Yield the undamaged records of the file, with "" for missing strings."""
    for record in journal.read(journal.runs_folder() / FILE):
        value = record.get("value")
        is_plain = isinstance(value, float | int | str) and not isinstance(value, bool)
        if isinstance(record.get("id"), str) and is_plain and "event" in record:
            yield {"unit": "", "what": "", "late": False} | record


def _three_digits(value: float | str) -> str:
    """Return a result as a string with three digits, such as 94.5. Whole numbers and words remain
    unchanged.
    """
    if isinstance(value, str) or not abs(value) < 1e3:
        return number(value)
    rounded = float(f"{value:.3g}")
    return number(value if rounded == round(value) else rounded)


def _with_unit(record: dict[str, Any]) -> str:
    return f"{number(record['value'])} {record['unit']}".strip()
