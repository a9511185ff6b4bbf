"""Build the book: `python -m docs.book`, at the top of the repository.

The lessons are executed one after the other, since two would share the processor that they measure.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError
from docs.book.contents import START, contents
from docs.book.executing import Executed, require_recordings
from docs.book.lesson_pages import lesson_page
from docs.book.offline import remote_resources
from docs.book.staging import remove_others, stage_linked, stage_page, write_if_new
from proflab.lessons import lessons
from tools.notebooks import Folders, build, solved_notebooks

if TYPE_CHECKING:
    from nbformat import NotebookNode

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = REPOSITORY / "build/book"
CONFIGURATION = Path(__file__).resolve().parent


def main() -> int:
    """Execute, stage, build and check. Returns 0, 2 if a lesson fails, 1 if the book does not come out right."""
    try:
        stage(TARGET / "pages")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    site = TARGET / "html"
    if done := build_site(TARGET / "pages", site):
        return done
    if found := remote_resources(site):
        print("error: the book needs the network:", *found, sep="\n  ", file=sys.stderr)
        return 1
    print(f"the book: {(site / 'index.html').relative_to(REPOSITORY)}")
    return 0


def stage(pages: Path) -> None:
    """Put all pages into the folder `pages`, the lessons executed."""
    parts = contents(REPOSITORY)
    names = [page for part in parts for page in part.pages]
    for page in [START, *names]:
        if page.endswith(".md"):
            stage_page(REPOSITORY, page, pages, parts)
    stage_lessons([Path(page).stem for page in names if page.endswith(".ipynb")], pages)
    remove_others(pages, {"index.md", *names})


def stage_lessons(names: list[str], pages: Path) -> None:
    """Execute the lessons of these names in their order, and write a page for each."""
    import nbformat

    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    solved = {path.parent.name: notebook for path, notebook in solved_notebooks(folders).items()}
    texts = build(folders)
    require_recordings("".join(path.read_text(encoding="utf-8") for path in folders.lessons.glob("*/lesson.py")))
    executed = Executed(TARGET / "lessons", REPOSITORY)
    for name in names:
        learner = nbformat.reads(texts[folders.notebooks / f"{name}.ipynb"], 4)
        done = executed.get(name, solved[name])
        page = lesson_page(name[:2], done, learner, lesson_note(name, done))
        stage_linked(REPOSITORY, f"notebooks/{name}.ipynb", "\n".join(cell.source for cell in page.cells), pages)
        write_if_new(pages / f"notebooks/{name}.ipynb", nbformat.writes(page))


def lesson_note(name: str, executed: NotebookNode) -> str:
    """The line below a lesson's title."""
    return (
        f"*About {lessons()[name[:2]].minutes} minutes. The outputs below are of {executed.metadata['executed']}; "
        f"solutions are behind a click. To do the lesson yourself, run `make lab` and open `notebooks/{name}.ipynb`.*"
    )


def build_site(pages: Path, html: Path) -> int:
    """Let Sphinx make the site; a warning, such as a dead link, is an error. Returns its exit code."""
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", CONFIGURATION]
    command += ["--doctree-dir", html.parent / "doctrees", "--quiet", "--fail-on-warning", pages, html]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
