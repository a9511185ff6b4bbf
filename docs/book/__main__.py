"""Build the book: run `python -m docs.book` at the top of the repository.

The lessons' outputs come from build/combined, where `make lessons` writes them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from docs.book import finished_lesson, traces
from docs.book.contents import START, contents
from docs.book.finish import finish
from docs.book.lesson_pages import lesson_page
from docs.book.offline import remote_resources
from docs.book.staging import remove_others, stage_linked, stage_page, write_if_new
from proflab.lessons import Lesson, lessons
from tidyprof.errors import UserError
from tools.notebooks import Folders, build, read_sources, read_workshops

if TYPE_CHECKING:
    from nbformat import NotebookNode

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = REPOSITORY / "build/book"
CONFIGURATION = Path(__file__).resolve().parent
DOWNLOADS = "downloads"
"""Folder next to the pages for the learners' notebooks, which aren't pages."""


LUNR = "contrib/search/templates/search/lunr.js"
"""Path of the search engine Lunr in the MkDocs package. It ranks the sections in the browser."""


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.book", description="Build the book in build/book/html."
    )
    parser.add_argument(
        "--finished",
        action="store_true",
        help=f"write only the finished lesson in notebooks/{finished_lesson.FOLDER}",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Stage, build and check the book.

    Return 0, 1 if Sphinx fails or the book needs a network, and 2 if a lesson wasn't run.
    """
    options = build_parser().parse_args(arguments)
    try:
        if options.finished:
            print(f"the finished lesson: {write_finished().relative_to(REPOSITORY)}")
            return 0
        stage(TARGET / "pages")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    site = TARGET / "html"
    if done := build_site(TARGET / "pages", site):
        return done
    if found := remote_resources(site):
        print("error: the book needs a network:", *found, sep="\n  ", file=sys.stderr)
        return 1
    print(f"the book: {(site / 'index.html').relative_to(REPOSITORY)}")
    return 0


def stage(pages: Path) -> None:
    """Write all pages into the folder `pages`, including the lessons with their outputs."""
    parts = contents(REPOSITORY)
    names = [page for part in parts for page in part.pages]
    for page in [START, *names]:
        if page.endswith(".md"):
            stage_page(REPOSITORY, page, pages, parts)
    stage_lessons([Path(page).stem for page in names if page.endswith(".ipynb")], pages)
    remove_others(
        pages, {"index.md", *names, *(f"{DOWNLOADS}/{Path(name).name}" for name in names)}
    )


def stage_lessons(names: list[str], pages: Path) -> None:
    """Write a page for each named lesson.

    Raises UserError if a lesson wasn't run in its current form.
    """
    import nbformat

    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    texts = build(folders)
    sources = [*read_sources(folders.lessons), *read_workshops(folders.lessons)]
    made = {one.lesson.folder.name: one.lesson for one in sources}
    for name in names:
        page = page_of(name, folders, texts, partial(lesson_note, made[name]))
        stage_linked(
            REPOSITORY,
            f"notebooks/{name}.ipynb",
            "\n".join(cell.source for cell in page.cells),
            pages,
        )
        write_if_new(
            pages / f"{DOWNLOADS}/{name}.ipynb", texts[folders.notebooks / f"{name}.ipynb"]
        )
        write_if_new(pages / f"notebooks/{name}.ipynb", nbformat.writes(page))


def write_finished() -> Path:
    """Write the finished lesson for the repository's page, and return its path.

    Raises UserError if it wasn't run in its current form.
    """
    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    lesson = lessons()[finished_lesson.LESSON]
    name = lesson.folder.name
    note = partial(finished_lesson.note, lesson.minutes)
    page = page_of(name, folders, build(folders), note)
    return finished_lesson.write(page, lesson, folders.notebooks)


def page_of(
    name: str, folders: Folders, texts: Mapping[Path, str], note: Callable[[date], str]
) -> NotebookNode:
    """Return a lesson's page with its outputs and a note that contains the date of the run.

    Raises UserError if the lesson wasn't run in its current form.
    """
    import nbformat

    learner = nbformat.reads(texts[folders.notebooks / f"{name}.ipynb"], 4)
    path = folders.combined / f"{name}.ipynb"
    done = executed(path, nbformat.reads(texts[path], 4))
    # The notebook doesn't contain the date of its run, but its file has one.
    return lesson_page(name[:2], done, learner, note(date.fromtimestamp(path.stat().st_mtime)))


def executed(path: Path, wanted: NotebookNode) -> NotebookNode:
    """Return the notebook at a path with its outputs.

    Raises UserError unless its cells match `wanted` and were all executed.
    """
    import nbformat

    found = nbformat.read(path, 4) if path.is_file() else None
    if found is None or [cell.source for cell in found.cells] != [
        cell.source for cell in wanted.cells
    ]:
        raise UserError(
            f"{path}: the lesson wasn't run in its current form. Run `make lessons` first."
        )
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    if not all(cell.execution_count for cell in code if cell.source.strip()):
        raise UserError(
            f"{path}: the lesson wasn't run to its end. To see why, run `make lessons`."
        )
    return found


def lesson_note(lesson: Lesson, day: date) -> str:
    """Return the line below a lesson's title.

    Words that make no sense on paper are in a `span`, which the printed version leaves out.
    """
    name = lesson.folder.name
    return (
        f"*About {lesson.minutes} minutes. The outputs below are from {day.isoformat()}*"
        '<span class="on-screen">*; solutions are behind a click*</span>*. '
        f"To do the lesson yourself, run `make lab` and open `notebooks/{name}.ipynb`*"
        '<span class="on-screen">*, or* {download}`download the notebook'
        f" </{DOWNLOADS}/{name}.ipynb>` "
        "*into that folder*</span>*.*"
    )


def build_site(pages: Path, html: Path, builder: str = "html") -> int:
    """Build the site with Sphinx, finish it, and return Sphinx's exit code.

    A warning, such as a dead link, is an error. Every page is written again because a finished page
    can't be finished twice.
    """
    # Remove pictures and traces from an earlier build.
    for folder in ("_images", traces.FOLDER):
        shutil.rmtree(html / folder, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--builder",
        builder,
        "--conf-dir",
        CONFIGURATION,
        "--write-all",
    ]
    command += [
        "--doctree-dir",
        html.parent / f"doctrees-{builder}",
        "--quiet",
        "--jobs",
        "2",
        "--fail-on-warning",
    ]
    command += [pages, html]
    if not (done := subprocess.run(command, check=False).returncode):
        finish(html)
        shutil.copy(files("mkdocs").joinpath(LUNR), html)
    return done


if __name__ == "__main__":
    raise SystemExit(main())
