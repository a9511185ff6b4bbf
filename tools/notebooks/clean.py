"""Git filter that cleans a notebook, so that opening or running a lesson doesn't change it.

The filter reads a notebook from standard input and writes it without outputs, counts and
JupyterLab's metadata. Your answers stay. `make setup` registers the filter with git
(`filter.lesson.clean`). Git runs this file for each changed notebook, so it uses only the standard
library.
"""

from __future__ import annotations

import json
import sys
from typing import Any

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""All metadata of a notebook. Other metadata would depend on who saved it last."""


SETUP_TAG = "setup"
"""Tag of a code cell that only prepares later cells. JupyterLab folds its code."""


def of_cell(tags: list[str], slide: str = "") -> dict[str, Any]:
    """Return all metadata of a cell with these tags. `slide` is the sentence of its slide."""
    metadata: dict[str, Any] = {"tags": sorted(tags)} if tags else {}
    if slide:
        metadata["slide"] = slide
    if SETUP_TAG in tags:
        metadata["jupyter"] = {"source_hidden": True}
    return metadata


def cleaned(text: str) -> str:
    """Return the text of a notebook file as it was before it was opened.

    Text that isn't a notebook stays unchanged.
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
    metadata = cell["metadata"]
    cell["metadata"] = of_cell(metadata.get("tags", []), metadata.get("slide", ""))
    if cell["cell_type"] == "code":
        cell["outputs"], cell["execution_count"] = [], None


if __name__ == "__main__":
    sys.stdout.buffer.write(cleaned(sys.stdin.buffer.read().decode()).encode())
