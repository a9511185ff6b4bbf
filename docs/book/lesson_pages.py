"""A lesson's page: the learner's cells, the outputs from the tests, and folded solutions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from proflab.recall import WIDGET
from tools.notebooks import KERNEL_TAG, SOLUTION_TAG

if TYPE_CHECKING:
    from nbformat import NotebookNode

METADATA = {
    "kernelspec": {"display_name": "Python 3", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
"""Lexer settings that color `%%bash` cells as shell code."""

FOLDED = "hide-cell"
"""Tag of a cell whose input and outputs myst-nb folds."""


def lesson_page(
    number: str, combined: NotebookNode, learner: NotebookNode, note: str
) -> NotebookNode:
    """Return the page of one lesson.

    combined -- the combined notebook with its outputs: each cell as it is shipped and, if that
                differs, as solved.
    learner  -- the learner's notebook, made from the same source.
    note     -- a line below the title.

    Raises ValueError if `combined` doesn't contain the learner's cells.
    """
    from nbformat import v4

    # The first and the last cell link to other lessons, but the book links them in its margins.
    given = _without_help(learner.cells[-2:0:-1])
    cells = []
    # The cell before the last links proves that all exercises passed.
    for cell in _without_help(combined.cells[1:-2]):
        if cell.cell_type == "code":
            cell.outputs = joined_streams(cell.outputs)
            # A page doesn't have a kernel that could answer a click.
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET, None)
        if SOLUTION_TAG in cell.metadata.get("tags", []):
            cells.append(_folded(cell))
        elif given and cell.cell_type == given[-1].cell_type == "markdown":
            shown = given.pop()  # its links are relative to the page's folder
            shown.metadata = cell.metadata
            cells.append(shown)
        elif given and cell.source == given[-1].source:
            given.pop()
            cells.append(cell)
        elif cell.cell_type == cells[-1].cell_type == "code":
            cells[-1].outputs = []  # nobody has filled in this cell
            cells.append(_folded(cell))
        else:
            raise ValueError(
                f"lesson {number}: the learner's notebook and the combined one have different cells"
            )
    if given:
        raise ValueError(
            f"lesson {number}: the combined notebook lacks cells of the learner's notebook"
        )
    cells[0].source = _titled(number, cells[0].source, note)
    return v4.new_notebook(metadata=METADATA, cells=cells)


def _without_help(cells: list[NotebookNode]) -> list[NotebookNode]:
    """Return the cells without the help for a failing first cell, because cells don't fail on a
    page.
    """
    return [cell for cell in cells if KERNEL_TAG not in cell.metadata.get("tags", [])]


def joined_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Return the outputs with consecutive printed text joined into one text per stream.

    A kernel sends text in pieces of any length. It mixes both streams and breaks lines.
    """
    joined: list[NotebookNode] = []
    row: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.output_type != "stream":
            row = {}
        elif output.name in row:
            # A program overwrites a line with \r, so only the line's last state counts.
            text = row[output.name].text + output.text
            row[output.name].text = re.sub(r"[^\n]*\r(?=[^\n])", "", text)
            continue
        else:
            output = row[output.name] = output.copy()
        joined.append(output)
    return joined


def _folded(cell: NotebookNode) -> NotebookNode:
    cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), FOLDED})
    return cell


def _titled(number: str, text: str, note: str) -> str:
    """Return the first cell with the lesson's number in its title and a line below the title."""
    title, rest = text.split("\n", maxsplit=1)
    return f"# {number} · {title.removeprefix('# ')}\n\n{note}\n{rest}"
