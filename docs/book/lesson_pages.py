"""A lesson's page: the learner's cells, the outputs of its run in the tests, and solutions behind a
click.
"""

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
"""The lexer colors `%%bash` cells as shell code."""

FOLDED = "hide-cell"
"""The tag of a cell that myst-nb folds, input and outputs."""


def lesson_page(
    number: str, combined: NotebookNode, learner: NotebookNode, note: str
) -> NotebookNode:
    """The page of one lesson.

    combined -- the combined notebook with its outputs: each cell as it is shipped and, if that
                differs, as solved.
    learner  -- the learner's notebook, made from the same source.
    note     -- a line below the title.

    Raises ValueError if the learner's cells are not in `combined`.
    """
    from nbformat import v4

    # The first and the last cell link to other lessons, which the book has in its margins.
    given = _without_help(learner.cells[-2:0:-1])
    cells = []
    # Before the last links is the proof that all exercises were passed.
    for cell in _without_help(combined.cells[1:-2]):
        if cell.cell_type == "code":
            cell.outputs = joined_streams(cell.outputs)
            # A page has no kernel that could answer a click.
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET, None)
        if SOLUTION_TAG in cell.metadata.get("tags", []):
            cells.append(_folded(cell))
        elif given and cell.cell_type == given[-1].cell_type == "markdown":
            cells.append(given.pop())  # whose links count from the page's folder
        elif given and cell.source == given[-1].source:
            given.pop()
            cells.append(cell)
        elif cell.cell_type == cells[-1].cell_type == "code":
            cells[-1].outputs = []  # of a cell that nobody has filled in
            cells.append(_folded(cell))
        else:
            raise ValueError(
                f"lesson {number}: the learner's notebook and the combined one have different cells"
            )
    if given:
        raise ValueError(
            f"lesson {number}: the learner's notebook has cells that the combined one lacks"
        )
    cells[0].source = _titled(number, cells[0].source, note)
    return v4.new_notebook(metadata=METADATA, cells=cells)


def _without_help(cells: list[NotebookNode]) -> list[NotebookNode]:
    """The cells without the help for a first cell that fails: on a page none does."""
    return [cell for cell in cells if KERNEL_TAG not in cell.metadata.get("tags", [])]


def joined_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs, with text that was printed in a row joined to one text for each stream.

    A kernel sends it in pieces of any length, those of the two streams mixed, and so with broken
    lines.
    """
    joined: list[NotebookNode] = []
    row: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.output_type != "stream":
            row = {}
        elif output.name in row:
            # A program overwrites a line with \r, so only its last state counts.
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
    """The first cell, its title with the lesson's number, and a line below it."""
    title, rest = text.split("\n", maxsplit=1)
    return f"# {number} · {title.removeprefix('# ')}\n\n{note}\n{rest}"
