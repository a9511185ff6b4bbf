"""Guess before you measure: predictions are kept in runs/predictions.jsonl and shown beside the result."""

from __future__ import annotations

import numbers
from typing import Any

from proflab import journal
from proflab.display import Notice, Table, number, show

FILE = "predictions.jsonl"


def predict(id: str, value: float | str, unit: str = "", what: str = "") -> None:
    """Store the prediction `id` (such as "02.a"): `value` in `unit` of `what`.

    Until the result is revealed it may be changed; afterwards the last one made before stands. `...` stores nothing.
    """
    if value is ...:
        show(Notice("Not predicted yet", f"Replace the `...` by your guess of {what or id}.", "open"))
        return
    standing, revealed = _history(id)
    if revealed and standing is not None:
        show(Notice("Kept", f"the result has been shown; your prediction stays {_with_unit(standing)}.", "info"))
        return
    plain = float(value) if isinstance(value, numbers.Real) else str(value)
    record = {"id": id, "event": "predict", "value": plain, "unit": unit, "what": what, "late": revealed}
    journal.append(FILE, record)
    show(Notice("Noted", f"you expect {_with_unit(record)}{f' for {what}' if what else ''}.", "info"))


def reveal(id: str, value: float | str) -> None:
    """Show the result, in the prediction's unit, beside what was predicted as `id`; say so if nothing was."""
    prediction, _ = _history(id)
    plain = float(value) if isinstance(value, numbers.Real) else str(value)
    journal.append(FILE, {"id": id, "event": "reveal", "value": plain})
    if prediction is None:
        show(Notice("Not predicted", f"the result is {number(plain)}. Next time, guess first.", "open"))
        return
    unit = prediction["unit"]
    rows = [("predicted", _with_unit(prediction)), ("result", _with_unit({"value": plain, "unit": unit}))]
    rows.append(("verdict", verdict(prediction["value"], plain)))
    note = "This prediction was made after the result had been shown." if prediction["late"] else ""
    show(Table(f"{id}: {prediction['what'] or 'prediction and result'}", ("step", "value"), rows, note))


def verdict(predicted: float | str, result: float | str) -> str:
    """How a prediction compares with the result, in words."""
    if isinstance(predicted, str) or isinstance(result, str):
        same = str(predicted).strip().casefold() == str(result).strip().casefold()
        return "as predicted" if same else "different"
    if predicted == result:
        return "as predicted"
    if predicted == 0 or result == 0 or (predicted < 0) != (result < 0):
        return f"off by {number(float(predicted - result))}"
    ratio = predicted / result
    return f"{number(float(max(ratio, 1 / ratio)))} times too {'high' if ratio > 1 else 'low'}"


def _history(id: str) -> tuple[dict[str, Any] | None, bool]:
    """The prediction that stands, if any, and whether the result has been shown."""
    standing, revealed = None, False
    for record in journal.read(journal.runs_folder() / FILE):
        if record.get("id") != id:
            continue
        if record["event"] == "reveal":
            revealed = True
        elif standing is None or not revealed:
            standing = record
    return standing, revealed


def _with_unit(record: dict[str, Any]) -> str:
    return f"{number(record['value'])} {record['unit']}".strip()
