"""The pages of the book and their order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.notebooks import WORKSHOP

START = "README.md"
"""Path of the first page in the repository. In the book, the page is `index.md`."""

READERS = "packages/tidyprof/docs"
"""Folder of the pages on tidyprof.

README comes first because capital letters sort before small letters.
"""

CARDS = """
<div class="cards">

- **Learn**

  Start with [lesson 00](notebooks/00_start_here.ipynb), or try the whole method in
  [90 minutes](notebooks/90_minutes.ipynb).
- **Look up**

  Find a command on the [cheat sheet](docs/cheat-sheet.md), the fix of a
  [cause](docs/triage.md), a [known issue](docs/known-issues.md), or a word in the
  [glossary](docs/glossary.md).
- **Teach**

  Hold the course or a 90-minute session with the [instructor guide](docs/instructor.md).

</div>
"""
"""Markdown of the cards at the top of the first page, one for each kind of reader."""

TO_LOOK_UP = (
    "setup",
    "cheat-sheet",
    "glossary",
    "known-issues",
    "known-issues-archive",
    "slurm",
    "slurm-sites",
    "releases",
    "migration",
    "gate",
    "triage",
    "hang",
    "more-of-rocprofv3",
    "who-ran-this",
)

FOR_INSTRUCTORS = (
    "instructor",
    "room",
    "hands",
    "before-and-after",
    "before-and-after-key",
)

TO_CARRY_ON = (
    "CONTRIBUTING.md",
    "docs/contributors/architecture.md",
    "docs/contributors/packages.md",
    "docs/contributors/decisions.md",
    "docs/contributors/reliability.md",
    "docs/contributors/validation.md",
    "docs/contributors/gpumodel.md",
    "docs/contributors/peers.md",
    "CHANGELOG.md",
    "packages/tidyprof/CHANGELOG.md",
)


@dataclass(frozen=True)
class Part:
    """Pages under one caption of the table of contents, as paths in the repository."""

    caption: str
    pages: tuple[str, ...]


def contents(repository: Path) -> tuple[Part, ...]:
    """Return all parts of the book.

    The first part contains the notebooks with sections of several lessons, which readers should try
    first, and then the lessons in order.
    """
    lessons = [
        path.parent.name
        for name in (WORKSHOP, "lesson.py")
        for path in sorted((repository / "lessons").glob(f"*/{name}"))
    ]
    readers = [f"{READERS}/{path.name}" for path in (repository / READERS).glob("*.md")]
    return (
        Part("Lessons", tuple(f"notebooks/{name}.ipynb" for name in lessons)),
        Part("Reference", tuple(f"docs/{name}.md" for name in TO_LOOK_UP)),
        Part("For instructors", tuple(f"docs/{name}.md" for name in FOR_INSTRUCTORS)),
        Part("For contributors", TO_CARRY_ON),
        Part("tidyprof", tuple(sorted(readers))),
    )


def toctrees(parts: tuple[Part, ...]) -> str:
    """Return the table of contents as Markdown for the end of the first page."""
    blocks = []
    for part in parts:
        pages = "\n".join(str(Path(page).with_suffix("")) for page in part.pages)
        blocks.append(f"```{{toctree}}\n:hidden:\n:caption: {part.caption}\n\n{pages}\n```\n")
    return "\n".join(blocks)
