"""A lesson's page: what the learner sees, the outputs of the solved notebook, and solutions behind a click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.notebooks import SOLUTION_TAG

if TYPE_CHECKING:
    from nbformat import NotebookNode

METADATA = {
    "kernelspec": {"display_name": "Python 3", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
"""The lexer colours `%%bash` cells as what they are."""

FOLDED = "hide-cell"
"""The tag by which myst-nb folds a cell, input and outputs."""


def lesson_page(number: str, solved: NotebookNode, learner: NotebookNode, note: str) -> NotebookNode:
    """The page of one lesson.

    solved  -- the solved notebook with its outputs.
    learner -- the learner's notebook, made from the same source: its cells, in order, are those of the solved one
               that are not tagged as solution. Raises ValueError if they are not.
    note    -- a line below the title.
    """
    from nbformat import v4

    # The first and the last cell are links between the lessons, which the book has in its margins.
    given = iter(learner.cells[1:-1])
    cells = []
    for cell in solved.cells[1:-1]:
        if cell.cell_type == "code":
            cell.outputs = joined_streams(cell.outputs)
        if SOLUTION_TAG in cell.metadata.get("tags", []):
            cells.append(_folded(cell))
            continue
        theirs = next(given)
        if theirs.cell_type != cell.cell_type:
            raise ValueError(f"lesson {number}: the learner's notebook and the solved one have different cells")
        if cell.cell_type == "code" and theirs.source != cell.source:
            cells += [theirs, _folded(cell)]
        else:
            cells.append(cell)
    if next(given, None) is not None:
        raise ValueError(f"lesson {number}: the learner's notebook has cells that the solved one lacks")
    cells[0].source = _titled(number, cells[0].source, note)
    return v4.new_notebook(metadata=METADATA, cells=cells)


def joined_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs with what was printed in a row as one text per stream.

    It arrives in pieces of any length, those of the two streams in between each other, and so with broken lines.
    """
    joined: list[NotebookNode] = []
    row: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.output_type != "stream":
            row = {}
        elif output.name in row:
            row[output.name].text += output.text
            continue
        else:
            output = row[output.name] = output.copy()
        joined.append(output)
    return joined


def _folded(cell: NotebookNode) -> NotebookNode:
    cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), FOLDED})
    return cell


def _titled(number: str, text: str, note: str) -> str:
    """The first cell, its title with the lesson's number and a line below it."""
    title, rest = text.split("\n", maxsplit=1)
    return f"# {number} · {title.removeprefix('# ')}\n\n{note}\n{rest}"
