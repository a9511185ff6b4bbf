"""A notebook as it is shipped: git's filter for lessons, so that opening and running them is no
change.

It reads a notebook from standard input and writes it without outputs, counts and JupyterLab's notes
about itself. Your answers stay. `make setup` tells git (`filter.lesson.clean`). It runs as a file,
with the standard library alone: git starts it for each changed notebook.
"""

from __future__ import annotations

import json
import sys
from typing import Any

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""All metadata of a notebook; any other would depend on who saved it last."""


def cleaned(text: str) -> str:
    """The text of a notebook file as it was before somebody opened it; a text that is no notebook
    stays unchanged.
    """
    try:
        notebook = json.loads(text)
        cells = notebook["cells"]
    except (ValueError, TypeError, KeyError):
        return text
    notebook["metadata"] = METADATA
    for cell in cells:
        _clean(cell)
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _clean(cell: dict[str, Any]) -> None:
    cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key == "tags"}
    if cell["cell_type"] == "code":
        cell["outputs"], cell["execution_count"] = [], None


if __name__ == "__main__":
    sys.stdout.buffer.write(cleaned(sys.stdin.buffer.read().decode()).encode())
