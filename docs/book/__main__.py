"""Build the book: `python -m docs.book`, at the top of the repository.

The lessons' outputs are taken from build/combined, where `make lessons` leaves them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
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
"""The folder beside the pages with the learners' notebooks, which are not pages."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.book", description="Build the book in build/book/html."
    )
    parser.add_argument(
        "--finished",
        action="store_true",
        help="write the finished lesson that the repository shows in"
        f" notebooks/{finished_lesson.FOLDER} instead",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Stage, build and check. Returns 0; 2 if a lesson was not run; 1 if Sphinx fails or the book
    needs the network.
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
        print("error: the book needs the network:", *found, sep="\n  ", file=sys.stderr)
        return 1
    print(f"the book: {(site / 'index.html').relative_to(REPOSITORY)}")
    return 0


def stage(pages: Path) -> None:
    """Put all pages into the folder `pages`, the lessons with their outputs."""
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
    """Write a page for each lesson of these names; raises UserError if a lesson was not run in its
    present form.
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
    """Write the finished lesson of the repository's own page, and return its path. Raises UserError
    if it was not run in its present form.
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
    """The page of a lesson with the outputs of its run, and a note made of the day of the run;
    raises UserError if the lesson was not run in its present form.
    """
    import nbformat

    learner = nbformat.reads(texts[folders.notebooks / f"{name}.ipynb"], 4)
    path = folders.combined / f"{name}.ipynb"
    done = executed(path, nbformat.reads(texts[path], 4))
    # The notebook keeps no date of its run, but its file does.
    return lesson_page(name[:2], done, learner, note(date.fromtimestamp(path.stat().st_mtime)))


def executed(path: Path, wanted: NotebookNode) -> NotebookNode:
    """The notebook of a path with its outputs; raises UserError unless its cells are those of
    `wanted`, and were executed to the end.
    """
    import nbformat

    found = nbformat.read(path, 4) if path.is_file() else None
    if found is None or [cell.source for cell in found.cells] != [
        cell.source for cell in wanted.cells
    ]:
        raise UserError(f"{path}: the lesson was not run as it is now; run `make lessons` first")
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    if not all(cell.execution_count for cell in code if cell.source.strip()):
        raise UserError(f"{path}: the lesson was not run to its end; `make lessons` says why")
    return found


def lesson_note(lesson: Lesson, day: date) -> str:
    """The line below a lesson's title; words on what paper can't do are in a `span`, which print
    leaves out.
    """
    name = lesson.folder.name
    return (
        f"*About {lesson.minutes} minutes. The outputs below are of {day.isoformat()}*"
        '<span class="on-screen">*; solutions are behind a click*</span>*. '
        f"To do the lesson yourself, run `make lab` and open `notebooks/{name}.ipynb`*"
        '<span class="on-screen">*, or* {download}`download the notebook'
        f" </{DOWNLOADS}/{name}.ipynb>` "
        "*into that folder*</span>*.*"
    )


def build_site(pages: Path, html: Path, builder: str = "html") -> int:
    """Let Sphinx make the site, and finish it; a warning, such as a dead link, is an error. Returns
    Sphinx's exit code.

    It writes every page, since a page that was finished can't be finished again.
    """
    # Pictures and traces of an earlier build would stay in the site.
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
    return done


if __name__ == "__main__":
    raise SystemExit(main())
