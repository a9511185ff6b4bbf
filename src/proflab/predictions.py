"""Guess before you measure: predictions are kept in runs/predictions.jsonl and shown beside the
result.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proflab import journal
from proflab.display import Notice, Table, number, show
from proflab.sources import stated

FILE = "predictions.jsonl"

ABOUT_RIGHT = 1.15
"""Largest factor by which a right guess differs from the result: a guess has about two digits, and
a result often differs by as much in another run.
"""


@dataclass(frozen=True)
class Comparison:
    """A prediction that counts, beside the first result that was shown for it.

    late   -- whether the prediction was made after the result had been shown.
    origin -- where the result comes from, "" if it does not say.
    """

    id: str
    predicted: float | str
    found: float | str
    unit: str
    what: str
    late: bool
    origin: str

    @property
    def lesson(self) -> str:
        """Number of the lesson: the part of the id before the point."""
        return self.id.partition(".")[0]

    @property
    def ratio(self) -> float | None:
        """Predicted / found; None for words, and unless both are positive numbers."""
        values = (self.predicted, self.found)
        if any(
            isinstance(value, str) or not math.isfinite(value) or value <= 0 for value in values
        ):
            return None
        return self.predicted / self.found


_ASKED: dict[str, tuple[str, str]] = {}
"""Id of each prediction that this process asked for -> its unit, and of what."""


def predict(id: str, value: float | str, unit: str = "", what: str = "") -> None:
    """Store the prediction `id` (such as "02.a"): `value` in `unit` of `what`.

    A prediction may be changed until the result is revealed; afterwards the last one made before
    counts. Nothing is stored for `...`, nor for a guess that may mean something else: words if a
    `unit` asks for a number, a fraction if it is "%".
    """
    _ASKED[id] = unit, what
    if value is ...:
        show(
            Notice(
                "Not predicted yet", f"Replace the `...` with your guess of {what or id}.", "open"
            )
        )
        return
    plain = _as_number(value, unit)
    if doubt := _doubt(value, plain, unit):
        show(Notice("Not noted", f"{doubt} ({what or id})", "open"))
        return
    standing, revealed = _history(id)
    if revealed and standing is not None:
        show(
            Notice(
                "Kept",
                f"the result has been shown; your prediction stays {_with_unit(standing)}.",
                "info",
            )
        )
        return
    record = {
        "id": id,
        "event": "predict",
        "value": plain,
        "unit": unit,
        "what": what,
        "late": revealed,
    }
    journal.append(FILE, record)
    show(
        Notice("Noted", f"you expect {_with_unit(record)}{f' for {what}' if what else ''}.", "info")
    )


def _as_number(value: object, unit: str) -> float | str:
    """A guess as it is stored: a number, also from a text such as "65 %", else the text."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    with contextlib.suppress(ValueError):
        if unit:
            return float(str(value).strip().removesuffix(unit))
    return str(value)


def _doubt(value: object, plain: float | str, unit: str) -> str:
    """A question about a guess that can't be meant, or may mean something else; "" if there is
    none.
    """
    if unit and (isinstance(plain, str) or not math.isfinite(plain)):
        return f"`{value}` can't be compared with the result: guess a number, in {unit}."
    if unit == "%" and 0 < plain < 1 and not isinstance(value, str):
        return (
            f"For {number(100 * plain)} % write {number(100 * plain)}. If you mean less than 1 %:"
            f' "{value} %".'
        )
    return ""


def reveal(id: str, value: float | str, origin: object = None) -> None:
    """Show the result, in the prediction's unit, beside the prediction `id`; if there is none, say
    so.

    origin -- where the result comes from: anything that `proflab.source` takes, or a text.

    Raises CourseError if the result has lost its origin.
    """
    prediction, _ = _history(id)
    plain = float(value) if isinstance(value, numbers.Real) else str(value)
    # Recorded even without a prediction: one that is made afterwards is late.
    journal.append(FILE, {"id": id, "event": "reveal", "value": plain, "origin": stated(origin)})
    if prediction is None:
        unit, what = _ASKED.get(id, ("", ""))
        result = f"{_three_digits(plain)} {unit}".strip()
        text = f"the result{f' for {what}' if what else ''} is {result}. Next time, guess first."
        show(Notice("Not predicted", text, "open"))
        return
    unit = prediction["unit"]
    rows = [
        ("predicted", _with_unit(prediction)),
        ("result", f"{_three_digits(plain)} {unit}".strip()),
    ]
    rows.append(("verdict", verdict(prediction["value"], plain, unit)))
    note = "This prediction was made after the result had been shown." if prediction["late"] else ""
    show(
        Table(
            f"{id}: {prediction['what'] or 'prediction and result'}", ("which", "value"), rows, note
        )
    )


def verdict(predicted: float | str, result: float | str, unit: str = "") -> str:
    """How a prediction compares with the result, both in `unit`, in words."""
    if isinstance(predicted, str) != isinstance(result, str):
        return "not compared: one is a number, the other is not"
    if isinstance(predicted, str) or isinstance(result, str):
        same = str(predicted).strip().casefold() == str(result).strip().casefold()
        return "as predicted" if same else "different"
    if predicted == result:
        return "as predicted"
    if predicted == 0 or result == 0 or (predicted < 0) != (result < 0):
        off = f"{number(abs(float(predicted - result)))} {unit}".strip()
        return f"{off} too {'high' if predicted > result else 'low'}"
    ratio = predicted / result
    factor = float(max(ratio, 1 / ratio))
    if factor <= ABOUT_RIGHT:
        return "about right"
    return f"{number(float(f'{factor:.2g}'))} times too {'high' if ratio > 1 else 'low'}"


def compared() -> list[Comparison]:
    """Every prediction whose result has been shown, in the order of the results; damaged lines are
    left out.
    """
    standing: dict[str, dict[str, Any]] = {}
    found: dict[str, Comparison] = {}
    for record in _records():
        id = record["id"]
        if record["event"] == "predict" and id not in found:
            standing[id] = record
        elif record["event"] == "reveal" and id in standing and id not in found:
            found[id] = _comparison(standing[id], record)
    return list(found.values())


def show_guesses() -> None:
    """Show every prediction in numbers that was made in time, beside its result; the farthest off
    first.
    """
    off = {one: max(one.ratio, 1 / one.ratio) for one in compared() if one.ratio and not one.late}
    rows = [
        (
            one.id,
            one.what,
            number(one.predicted),
            _three_digits(one.found),
            one.unit,
            _three_digits(float(off[one])),
        )
        for one in sorted(off, key=off.__getitem__, reverse=True)
    ]
    if rows:
        columns = ("id", "what", "predicted", "found", "unit", "times off")
        note = "your guesses, and the lessons' results"
        numbers_of = ("predicted", "found", "times off")
        show(Table("How well you guessed", columns, rows, note, flush_right=numbers_of))
    else:
        show(Notice("No guess yet", "There is none in numbers to compare with its result.", "open"))


def _comparison(prediction: dict[str, Any], result: dict[str, Any]) -> Comparison:
    return Comparison(
        id=prediction["id"],
        predicted=prediction["value"],
        found=result["value"],
        unit=prediction["unit"],
        what=prediction["what"],
        late=prediction["late"],
        origin=result["origin"],
    )


def _history(id: str) -> tuple[dict[str, Any] | None, bool]:
    """The prediction that counts, if any, and whether the result has been shown."""
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
    """The records of the file, with "" for each text that a record lacks; damaged lines are left
    out.
    """
    for record in journal.read(journal.runs_folder() / FILE):
        id, event, value = record.get("id"), record.get("event"), record.get("value")
        is_plain = isinstance(value, float | int | str) and not isinstance(value, bool)
        if isinstance(id, str) and event in ("predict", "reveal") and is_plain:
            texts = {name: str(record.get(name, "")) for name in ("unit", "what", "origin")}
            yield {
                "id": id,
                "event": event,
                "value": value,
                "late": bool(record.get("late")),
                **texts,
            }


def _three_digits(value: float | str) -> str:
    """A result as text: 94.5, 0.997. Whole numbers and words stay unchanged."""
    if isinstance(value, str) or not abs(value) < 1e3:
        return number(value)
    rounded = float(f"{value:.3g}")
    return number(value if rounded == round(value) else rounded)


def _with_unit(record: dict[str, Any]) -> str:
    return f"{number(record['value'])} {record['unit']}".strip()
