"""Build the notebooks from the lessons. `python -m tools.notebooks` is the command line.

A lesson is a solved notebook in jupytext's py:percent format, lessons/NN_name/lesson.py. It is the
source of notebooks/NN_name.ipynb for the learner (without solutions) and
build/combined/NN_name.ipynb for the tests. The combined notebook contains each cell as the learner
gets it and then as it is solved, so one run tests both. A workshop, lessons/90_minutes/workshop.py,
is a lesson without a number in the course.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from proflab.display import ACCENTS
from proflab.errors import CourseError
from proflab.lessons import Lesson, lessons
from proflab.releases import filled, newest, release, shown
from tools.notebooks.clean import METADATA, cleaned, of_cell
from tools.solutions import learner_sources, solved_source

if TYPE_CHECKING:
    from nbformat import NotebookNode

SOLUTION_TAG = "solution"

WORKSHOP = "workshop.py"
"""Source of a notebook with sections of several lessons, next to its workshop.toml."""

SNIPPETS = Path("snippets")
"""Folder of the files that learners can use at work.

`{snippet NAME}` on a separate line becomes a link to a snippet.
"""

COLUMNS = 88
"""Maximum number of characters in a line of code that fits a JupyterLab cell at 1280 pixels.

Longer lines scroll sideways.
"""

QUESTION_TAG = "question"

KERNEL_TAG = "kernel"
"""Tag of the cell with instructions in case the first code cell fails."""

QUESTION_BOX = (
    f'<blockquote style="border-left:0.4em solid {ACCENTS["open"]};background:{ACCENTS["open"]}20;'
    'margin:0;padding:0.5em 0.9em 0.1em">'
)
"""Start of the box around an exercise's question, in the color of an unanswered exercise.

If styles are dropped, as on GitHub, a quotation still has a bar. The heading is above the box
because the book can't start a section within HTML.
"""

_EXERCISE = re.compile(r'\bexercise\("(\d\d\.\d+)"')
_QUESTION = re.compile(
    r"^# (?P<effort>\d+ minutes?(?:, [^:\n]+)?): (?P<text>.+\n(?:#"
    r" (?!solution$).+\n)*)",
    re.MULTILINE,
)
_LIST = re.compile(r"(?<=^## Lessons\n\n).*?(?=\n## |\Z)", re.MULTILINE | re.DOTALL)
"""README's list of lessons."""

_TRIED = re.compile(r"(?<=against the options of \[)[^\]]+(?=\]\(docs/releases\.md\))")
"""List of the releases in README that commands are checked against."""

_SNIPPET = re.compile(r"^\{snippet (\S+)\}$", re.MULTILINE)

_DRAWING = re.compile(r"^\{drawing (\S+)\}$", re.MULTILINE)
"""Reference to a drawing in DRAWINGS by its file name."""

SLIDE = "slide:"
"""Prefix of the tag with a slide's sentence, which becomes the cell's metadata `slide`."""

DRAWINGS = Path("docs/drawings")
"""Folder of the drawings. The title of each drawing is its alternative text."""

Built = tuple[str, str, list[str]]
"""A notebook cell before it is created: its type, its text and its tags."""

ELSEWHERE = (
    "> **Note:** If the first cell raises `ModuleNotFoundError`, the notebook doesn't use the"
    " course's kernel. [`make lab`]({}README.md#get-started) starts the right one. On other"
    " systems, such as Colab, run `%pip install '.[train]'` in the course's folder and restart the"
    " kernel."
)
"""Instructions in case packages are missing.

The braces are replaced by the path to the course's top folder.
"""


@dataclass(frozen=True)
class Folders:
    """Folders of the lessons and of the notebooks built from them."""

    lessons: Path = Path("lessons")
    notebooks: Path = Path("notebooks")
    combined: Path = Path("build/combined")


@dataclass(frozen=True)
class Source:
    """One lesson's source: the lesson, its title (its H1), its cells as jupytext reads them, and
    the file.
    """

    lesson: Lesson
    title: str
    notebook: NotebookNode
    path: Path

    @property
    def whole(self) -> bool:
        """True for a lesson and False for a notebook with sections of several lessons."""
        return self.path == self.lesson.source

    @property
    def number(self) -> str:
        """Number of the lesson in two digits."""
        return self.lesson.number

    @property
    def target(self) -> str:
        """File name of the lesson's notebooks."""
        return f"{self.lesson.folder.name}.ipynb"


def read_sources(folder: Path) -> list[Source]:
    """Return all lessons in order. Raises CourseError for a lesson that can't be used."""
    return [_read(lesson, lesson.source) for lesson in lessons(folder).values()]


def read_workshops(folder: Path) -> list[Source]:
    """Return the notebooks that contain sections of several lessons."""
    return [
        _read(Lesson(path.parent, **tomllib.loads(path.with_suffix(".toml").read_text())), path)
        for path in sorted(folder.glob(f"*/{WORKSHOP}"))
    ]


def build(folders: Folders) -> dict[Path, str]:
    """Return the text of each notebook by its path: the learners' and combined notebooks, and
    README.
    """
    sources = read_sources(folders.lessons)
    learner, combined = {}, {}
    for group in (sources, *([one] for one in read_workshops(folders.lessons))):
        learner |= _texts(group, _without_slides, home="../")
        combined |= _texts(group, combined_cells, home="../../")
    return {
        **_readme(folders.lessons.parent / "README.md", sources),
        **{folders.notebooks / name: text for name, text in learner.items()},
        **{folders.combined / name: text for name, text in combined.items()},
    }


def _readme(path: Path, sources: list[Source]) -> dict[Path, str]:
    """Return README with its list of lessons, made from each lesson.toml, and with the releases.
    The result is empty if README has no such list.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not _LIST.search(text):
        return {}
    lines = []
    for core, kind in (
        (True, "The core lessons follow one example run"),
        (False, "The electives are independent of each other"),
    ):
        chosen = [source.lesson for source in sources if source.lesson.core == core]
        if not chosen:
            continue
        hours = round(sum(one.minutes for one in chosen) / 60)
        lines.append(f"{kind} and take about {hours} hours (minutes in parentheses):\n")
        lines += [
            f"- {one.number} [{one.question}](notebooks/{one.folder.name}.ipynb) ({one.minutes})"
            for one in chosen
        ]
        lines.append("")
    text = _LIST.sub(lambda _: "\n".join(lines), text)
    later = (f", and {one} (unconfirmed)" for one in shown() if not release(one).confirmed)
    return {path: _TRIED.sub("".join([f"{shown()[0]} to {newest().rocm}", *later]), text)}


def write(folders: Folders, combined_only: bool = False) -> list[Path]:
    """Build all notebooks, or only the combined ones, and write those whose text has changed.

    Return their paths.
    """
    changed = []
    for path, text in build(folders).items():
        if combined_only and path.parent != folders.combined:
            continue
        if not path.is_file() or _without_outputs(path) != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _without_outputs(path: Path) -> str:
    """Return the text of a file. For a notebook, return its text before it was run.

    An executed notebook is therefore kept until a cell changes.
    """
    text = path.read_text(encoding="utf-8")
    return cleaned(text) if path.suffix == ".ipynb" else text


def stale(folders: Folders) -> list[str]:
    """Return a message for each learner's notebook, and for README, that differs from its lesson.

    Each message contains the first lines that differ.
    """
    wanted = {
        path: text for path, text in build(folders).items() if path.parent != folders.combined
    }
    findings = []
    for path, text in wanted.items():
        if not path.is_file():
            findings.append(f"{path}: missing")
        elif (have := _without_outputs(path)) != text:
            findings.append(f"{path}: differs from its lesson\n{_difference(have, text)}")
    orphans = sorted(set(folders.notebooks.glob("*.ipynb")) - set(wanted))
    return findings + [
        f"{path}: no lesson has this name. Delete it, or add its source to {folders.lessons}."
        for path in orphans
    ]


def solved_notebooks(folders: Folders) -> dict[Path, NotebookNode]:
    """Return the lessons as solved notebooks by their paths.

    Links are relative to the learners' folder.
    """
    import nbformat

    texts = _texts(read_sources(folders.lessons), solved_cells, home="../")
    return {
        folders.lessons / Path(name).stem / "lesson.py": nbformat.reads(text, 4)
        for name, text in texts.items()
    }


def learner_cells(source: Source) -> list[Built]:
    """Return the cells of the lesson without its solutions."""
    cells = [cell for cell in source.notebook.cells if not is_solution(cell)]
    texts = iter(learner_sources([cell.source for cell in cells if cell.cell_type == "code"]))
    return [
        _built(cell, next(texts) if cell.cell_type == "code" else cell.source) for cell in cells
    ]


def _without_slides(source: Source) -> list[Built]:
    """Return the learner's cells without the marks for slides."""
    return [
        (kind, text, [tag for tag in tags if not tag.startswith(SLIDE)])
        for kind, text, tags in learner_cells(source)
    ]


def solved_cells(source: Source) -> list[Built]:
    """Return the cells of the lesson with its solutions."""
    code = [cell.cell_type == "code" for cell in source.notebook.cells]
    return [
        _built(cell, solved_source(cell.source) if is_code else cell.source)
        for cell, is_code in zip(source.notebook.cells, code, strict=True)
    ]


def combined_cells(source: Source) -> list[Built]:
    """Return each cell as the learner gets it and, if it differs, as it is solved.

    The last cell contains the proof that all exercises passed.
    """
    learner = iter(learner_cells(source))
    built = []
    for cell, solved in zip(source.notebook.cells, solved_cells(source), strict=True):
        if not is_solution(cell) and (shipped := next(learner)) != solved:
            built.append(shipped)
        built.append(solved)
    asked = _EXERCISE.findall("\n".join(text for kind, text, _ in built if kind == "code"))
    ids = [source.number] if source.whole else dict.fromkeys(asked)
    proven = ", ".join(f'"{id}"' for id in ids)
    proof = f"from proflab.exercises.registry import all_proven\n\nall_proven({proven})"
    return [*built, ("code", proof, [])]


def is_solution(cell: NotebookNode) -> bool:
    """Return True if a cell is only for the solved lesson."""
    return SOLUTION_TAG in cell.metadata.get("tags", [])


def _built(cell: NotebookNode, text: str) -> Built:
    """Return a cell before it is created. `slide="..."` in its header becomes a tag."""
    metadata = cell.metadata
    slide = [f"{SLIDE}{metadata['slide']}"] if "slide" in metadata else []
    return cell.cell_type, text, [*metadata.get("tags", []), *slide]


def _texts(
    sources: list[Source], cells: Callable[[Source], list[Built]], home: str
) -> dict[str, str]:
    """Return the text of each notebook by its file name.

    `home` is the path from the notebooks' folder to the top of the course.
    """
    texts = {}
    for place, source in enumerate(sources):
        before = sources[place - 1] if place else None
        after = sources[place + 1] if place + 1 < len(sources) else None
        top, bottom = _navigation(source, before, after, home)
        shown = functools.partial(_filled, cells, source.lesson.folder.parents[1] / SNIPPETS, home)
        texts[source.target] = _text(source, home, top, bottom, shown)
    return texts


def _filled(
    cells: Callable[[Source], list[Built]], folder: Path, home: str, source: Source
) -> list[Built]:
    """Return the cells with the names of snippets, drawings and releases replaced by their
    contents.
    """

    def complete(text: str) -> str:
        text = _SNIPPET.sub(lambda found: _snippet(folder, found[1], home), filled(text))
        return _DRAWING.sub(lambda found: _drawing(found[1], home), text)

    return [
        (kind, complete(text) if kind == "markdown" else text, tags)
        for kind, text, tags in cells(source)
    ]


def _snippet(folder: Path, name: str, home: str) -> str:
    """Return a link to a snippet. Raises CourseError if the file doesn't exist."""
    if not (folder / name).is_file():
        raise CourseError(f"the snippet {folder / name} doesn't exist")
    return f"**[`snippets/{name}`]({home}snippets/{name})**"


def _drawing(name: str, home: str) -> str:
    """Return a drawing with its title as the alternative text.

    Raises CourseError if the drawing doesn't exist.
    """
    path = DRAWINGS / f"{name}.svg"
    try:
        title = ElementTree.parse(path).find("{*}title")
    except OSError:
        raise CourseError(f"the drawing {path} doesn't exist") from None
    return f"![{title.text}]({home}{path})"


def _read(lesson: Lesson, path: Path) -> Source:
    try:
        import jupytext
        import nbformat
        import yaml
    except ModuleNotFoundError as error:
        raise CourseError(
            f"{error.name} isn't installed. Run `pip install -e '.[dev]'` in the course's folder"
        ) from None
    try:
        notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    except (nbformat.ValidationError, yaml.YAMLError) as error:
        found = str(error).splitlines()[0]
        raise CourseError(
            f"{path}: its header or a cell's metadata can't be read: {found}. Remove the header"
        ) from None
    notebook.cells = [part for cell in notebook.cells for part in _with_question(cell)]
    markdown = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    title = re.search(r"^# (.+)$", "\n".join(markdown), flags=re.MULTILINE)
    if title is None:
        raise CourseError(
            f"{path} doesn't have an H1 in a Markdown cell. Start the lesson with `# Title`"
        )
    return Source(lesson, title.group(1).strip(), notebook, path)


def _with_question(cell: NotebookNode) -> Iterator[NotebookNode]:
    """Yield an exercise's question as a text cell with a heading, then the cell without the
    question.

    In the lesson, the question is a comment above the exercise.
    """
    from nbformat import v4

    exercise = _EXERCISE.search(cell.source) if cell.cell_type == "code" else None
    asked = _QUESTION.search(cell.source) if exercise else None
    if asked:
        text = asked["text"].replace("\n# ", "\n").strip()
        heading = f"### Exercise {exercise[1]} ({asked['effort'].replace('R', 'r')})"
        boxed = f"{QUESTION_BOX}\n\n{text[0].upper()}{text[1:]}\n\n</blockquote>"
        yield v4.new_markdown_cell(f"{heading}\n\n{boxed}", metadata={"tags": [QUESTION_TAG]})
        cell.source = (
            re.sub(r"\n{3,}", "\n\n", cell.source[: asked.start()]) + cell.source[asked.end() :]
        )
    yield cell


def _text(
    source: Source, home: str, top: str, bottom: str, cells: Callable[[Source], list[Built]]
) -> str:
    import nbformat

    try:
        built = [("markdown", top, []), *cells(source), ("markdown", bottom, [])]
    except CourseError as error:
        raise CourseError(f"{source.path}: {error}") from None
    code = (place for place, (kind, *_) in enumerate(built) if kind == "code")
    built.insert(next(code, len(built) - 1), ("markdown", ELSEWHERE.format(home), [KERNEL_TAG]))
    notebook = nbformat.v4.new_notebook(metadata=METADATA, cells=_cells(source.number, built))
    nbformat.validate(notebook)
    return nbformat.writes(notebook, indent=1) + "\n"


def _cells(number: str, built: list[Built]) -> list[NotebookNode]:
    """Return cells with ids made from the lesson and the text.

    A new cell therefore doesn't change the ids of other cells.
    """
    from nbformat import v4

    seen: dict[str, int] = {}
    cells = []
    for kind, text, tags in built:
        digest = hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        id = f"lesson-{number}-{digest}" + (f"-{seen[digest]}" if seen[digest] > 1 else "")
        new = v4.new_code_cell if kind == "code" else v4.new_markdown_cell
        sentences = [tag.removeprefix(SLIDE) for tag in tags if tag.startswith(SLIDE)]
        others = [tag for tag in tags if not tag.startswith(SLIDE)]
        cells.append(new(text, id=id, metadata=of_cell(others, *sentences)))
    return cells


def _navigation(
    source: Source, before: Source | None, after: Source | None, home: str
) -> tuple[str, str]:
    """Return the line above a lesson and the line below it."""
    links = [f"[Course]({home}README.md)"]
    links += [f"previous: [{before.title}]({before.target})"] if before else []
    links += [f"next: [{after.title}]({after.target})"] if after else []
    line = " · ".join(links)
    name = f"Lesson {source.number}" if source.whole else "From several lessons"
    top = f"**{name}** · about {source.lesson.minutes} minutes · " + line.replace(" · ", "  \n", 1)
    return top, f"---\n\n{line}"


def _difference(have: str, wanted: str, lines: int = 12) -> str:
    found = list(
        difflib.unified_diff(
            have.splitlines(), wanted.splitlines(), "notebook", "lesson", n=0, lineterm=""
        )
    )
    rest = [f"... and {len(found) - lines} more lines"] if len(found) > lines else []
    return "\n".join(f"    {line}" for line in found[:lines] + rest)
