"""A notebook of sections of several lessons, such as the one for a talk of 90 minutes:
lessons/NN_name/recipe.toml.

The recipe has `title`, `opening` and `closing`, `minutes` and `waiting` as lesson.toml has them,
and for each lesson a `[[part]]` with `lesson`, `heading` and `text`. A part's `[[part.section]]`
has the `name` of a section, perhaps another `title` for it, and a `text` that comes before it. Of
the lesson's other cells a part takes the code cells whose names or files it needs, each once and in
its place, so it runs without the rest and takes no name from another part. It must not redefine a
name or a file that an earlier part needs: somebody who goes back runs a cell of that part again.
The parts share one folder and one `$CASE`, and `lesson` is called `lesson_03` in the part of lesson
03.
"""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.errors import CourseError
from proflab.lessons import Lesson
from tools.notebook_lint import python_of
from tools.notebooks import QUESTION_TAG, Source, is_solution
from tools.notebooks.names import Names, names_of

if TYPE_CHECKING:
    from nbformat import NotebookNode

RECIPE = "recipe.toml"

_FIELDS = (
    {"title", "opening", "closing", "minutes", "waiting", "part"},
    {"lesson", "heading", "text", "section"},
    {"name"},
)
"""Fields that a recipe, a part and a section must have."""

_BEGINS = re.compile(r"^(?=##? )", re.MULTILINE)
_HEADING = re.compile(r"##? (.+)")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LESSON = re.compile(r"\blesson(?= = proflab\.start\(|\.)")
_START = re.compile(r"(proflab\.start\([^)]*)\)")
"""The lesson's session in code, and the call that begins it."""

_SHEET = re.compile(r"\nlesson_\d\d\.sheet\(\)$", re.MULTILINE)
"""Shows the findings of the lessons before: here it would give away the answer to a later part's
question.
"""

_TARGET = re.compile(r"^\[([^\]]+)\]: \S.*$", re.MULTILINE)
"""The target of a reference such as [text][name]."""


@dataclass(frozen=True)
class Piece:
    """A cell of a lesson, or the part of a cell of text that belongs to one section; `section` is
    its heading.
    """

    section: str
    cell: NotebookNode


def excerpts(folder: Path, sources: list[Source]) -> list[Source]:
    """The notebooks for the recipes below a folder; raises CourseError for a recipe that can't be
    followed.
    """
    known = {source.number: source for source in sources}
    return [_made(path, known) for path in sorted(folder.glob(f"*/{RECIPE}"))]


def pieces(source: Source) -> list[Piece]:
    """A lesson's cells, with cells of text cut at the beginning of each section."""
    found, section = [], ""
    for cell in source.notebook.cells:
        if cell.cell_type != "markdown":
            found.append(Piece(section, cell))
            continue
        for text in _cut(cell.source):
            begins = _HEADING.match(text)
            section = begins[1].strip() if begins else section
            found.append(Piece(section, _with_text(cell, text)))
    return found


def _cut(text: str) -> list[str]:
    """Text in pieces that begin with a heading, each with the targets of its references."""
    targets = {found[1]: found[0] for found in _TARGET.finditer(text)}
    fenced = [found.span() for found in _FENCED.finditer(text)]
    places = [found.start() for found in _BEGINS.finditer(text)]
    places = [place for place in places if not any(begin < place < end for begin, end in fenced)]
    if places in ([], [0]):
        return [text]
    bounds = [0, *(place for place in places if place), len(text)]
    cut = [_TARGET.sub("", text[begin:end]).strip() for begin, end in pairwise(bounds)]
    return [_referring(part, targets) for part in cut]


def _referring(text: str, targets: Mapping[str, str]) -> str:
    lines = [line for name, line in targets.items() if f"][{name}]" in text]
    return "\n\n".join([text, *(["\n".join(lines)] if lines else [])])


def _with_text(cell: NotebookNode, text: str) -> NotebookNode:
    from nbformat import v4

    return v4.new_markdown_cell(text, metadata=cell.metadata)


def _made(path: Path, known: Mapping[str, Source]) -> Source:
    from nbformat import v4

    recipe = _recipe(path)
    lesson = Lesson(path.parent, recipe["title"], "", recipe["minutes"], waiting=recipe["waiting"])
    cells = [v4.new_markdown_cell(f"# {recipe['title']}\n\n{recipe['opening'].strip()}")]
    parts: list[list[NotebookNode]] = []
    try:
        for part in recipe["part"]:
            if part["lesson"] not in known:
                raise CourseError(
                    f"there is no lesson {part['lesson']!r}: {near(str(part['lesson']), known)}"
                )
            cells.append(v4.new_markdown_cell(f"## {part['heading']}\n\n{part['text'].strip()}"))
            source = known[part["lesson"]]
            parts.append([_own(cell, source, path) for cell in _part(part["section"], source)])
            cells += parts[-1]
        _check_names(recipe, parts)
        cells.append(v4.new_markdown_cell(recipe["closing"].strip()))
        _check_headings(cells)
    except CourseError as error:
        raise CourseError(f"{path}: {error}") from None
    notebook = v4.new_notebook(cells=cells)
    return Source(lesson, recipe["title"], notebook, path)


def _recipe(path: Path) -> dict[str, Any]:
    """The recipe, with all of its fields; raises CourseError if one is missing."""
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CourseError(f"{path}: no TOML: {error}") from None
    parts = recipe.get("part", [])
    lessons = Counter(part.get("lesson") for part in parts)
    sections = [section for part in parts for section in part.get("section", [])]
    for tables, fields in zip(([recipe], parts, sections), _FIELDS, strict=True):
        if missing := sorted({name for table in tables for name in fields - set(table)}):
            raise CourseError(
                f"{path}: {', '.join(missing)} is missing; lessons/90_minutes/{RECIPE} shows the"
                " form"
            )
    if twice := [number for number, count in lessons.items() if count > 1]:
        raise CourseError(f"{path}: lesson {twice[0]} has two parts; put its sections into one")
    return recipe


def _part(sections: list[dict[str, str]], source: Source) -> Iterator[NotebookNode]:
    """The cells of some sections of a lesson, in the lesson's order, with the code that they need
    before and between them.
    """
    from nbformat import v4

    all_pieces = pieces(source)
    known = list(dict.fromkeys(piece.section for piece in all_pieces if piece.section))
    wanted = {section["name"]: section for section in sections}
    for name in wanted:
        if name not in known:
            raise CourseError(
                f"lesson {source.number} has no section {name!r}: {near(name, known)}"
            )
    if [section["name"] for section in sections] != [name for name in known if name in wanted]:
        raise CourseError(
            f"sections of lesson {source.number} stand in another order than there, or twice"
        )
    chosen = {place for place, piece in enumerate(all_pieces) if piece.section in wanted}
    needed = _needed([piece.cell for piece in all_pieces], chosen) - chosen
    taken = sorted(chosen | needed)
    for before, place in zip([None, *taken], taken, strict=False):
        piece = all_pieces[place]
        if place in needed and before not in needed:
            link = f"[lesson {source.number}]({source.target})"
            yield v4.new_markdown_cell(f"*From {link}, for the cells below: run it unread.*")
        if place in chosen and (place == 0 or all_pieces[place - 1].section != piece.section):
            yield from _opened(piece.cell, wanted[piece.section])
        else:
            yield piece.cell


def _own(cell: NotebookNode, source: Source, recipe: Path) -> NotebookNode:
    """A cell with its lesson's own name for the session, and with the folder that all parts
    share.
    """
    text = (
        cell.source.replace("this lesson", "this notebook")
        if cell.cell_type == "markdown"
        else cell.source
    )
    if cell.cell_type == "code" and not text.startswith("%%"):
        text = _LESSON.sub(f"lesson_{source.number}", text)
        text = _START.sub(rf'\1, within="{recipe.parent.name}")', text)
        text = _SHEET.sub("", text)
    own = copy(cell)
    own.source = text
    return own


def _opened(cell: NotebookNode, section: dict[str, str]) -> Iterator[NotebookNode]:
    """A section's first cell with its title here, after the text that comes before it."""
    from nbformat import v4

    if text := section.get("text"):
        yield v4.new_markdown_cell(text.strip())
    yield _with_text(
        cell, _HEADING.sub(f"## {section.get('title', section['name'])}", cell.source, count=1)
    )


def _needed(cells: list[NotebookNode], chosen: set[int]) -> set[int]:
    """Places of the cells that the chosen ones need, directly or through others."""
    found = {place: _names(cell) for place, cell in enumerate(cells) if cell.cell_type == "code"}
    needed, left = set(), [place for place in chosen if place in found]
    while left:
        place = left.pop()
        new = set(_providers(found, place)) - needed - chosen
        # The question of an exercise is the cell before it.
        new |= {one - 1 for one in new if QUESTION_TAG in cells[one - 1].metadata.get("tags", [])}
        needed |= new
        left += [one for one in new if one in found]
    return needed


def _names(cell: NotebookNode) -> Names:
    names = names_of(cell.source if cell.source.startswith("%%") else python_of(cell.source))
    return Names() if is_solution(cell) else names


def _providers(found: Mapping[int, Names], place: int) -> Iterator[int]:
    """For each name that a cell needs the last cell before it that defines the name; for each file
    the first cell that names it.
    """
    for name in found[place].needs:
        giving = [one for one, names in found.items() if name in names.gives and one != place]
        before = [one for one in giving if one < place]
        if before:
            yield before[-1]
        elif giving and not hasattr(builtins, name):
            yield giving[0]  # what a function asks for when it is called
    for file in found[place].files:
        makes = next(one for one, names in found.items() if file in names.files)
        if makes < place:
            yield makes


def _check_names(recipe: Mapping[str, Any], parts: list[list[NotebookNode]]) -> None:
    """Raise CourseError if a part redefines a name or a file that an earlier part needs."""
    needs: dict[str, str] = {}
    for part, cells in zip(recipe["part"], parts, strict=True):
        found = [_names(cell) for cell in cells if cell.cell_type == "code"]
        imported = {name for cell in cells if cell.cell_type == "code" for name in _imports(cell)}
        gives = {name for names in found for name in names.gives} - imported
        files = {f"$FOLDER/{file}" for names in found for file in names.files}
        if taken := sorted((gives | files) & needs.keys()):
            raise CourseError(
                f"lesson {part['lesson']} gives {taken[0]!r} anew, which lesson {needs[taken[0]]}"
                " needs: who goes back would get the wrong one; rename it in one of them"
            )
        asked = {name for names in found for name in names.needs}
        needs |= dict.fromkeys(asked | files, part["lesson"])


def _imports(cell: NotebookNode) -> Iterator[str]:
    """The names that a cell imports: another part imports the same."""
    tree = ast.parse("" if cell.source.startswith("%%") else python_of(cell.source))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (one.asname or one.name.partition(".")[0] for one in node.names)


def _check_headings(cells: list[NotebookNode]) -> None:
    """Raise CourseError if two sections have one name: a link could lead to either."""
    texts = (_FENCED.sub("", cell.source) for cell in cells if cell.cell_type == "markdown")
    names = Counter(
        name.strip() for text in texts for name in re.findall(r"^##? (.+)$", text, re.MULTILINE)
    )
    if twice := [name for name, count in names.items() if count > 1]:
        raise CourseError(f"two sections are called {twice[0]!r}; give one a `title`")
