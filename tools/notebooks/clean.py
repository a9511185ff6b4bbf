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
    cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key == "tags"}
    if cell["cell_type"] == "code":
        cell["outputs"], cell["execution_count"] = [], None


if __name__ == "__main__":
    sys.stdout.buffer.write(cleaned(sys.stdin.buffer.read().decode()).encode())
