"""Cut the solutions out of a lesson's cells, and leave what the learner fills in.

In a code cell, a line `# solution` starts the part to cut, which ends at `# end solution` or at the
end of the cell. A cell tagged `solution` is dropped completely.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator

from proflab.errors import CourseError
from proflab.exercises.model import BEGIN, END

YOUR_TURN = "# your turn"


def solved_source(source: str) -> str:
    """Return the cell's text without the marker lines."""
    return "\n".join(line for line in source.split("\n") if line.strip() not in (BEGIN, END))


def learner_sources(sources: list[str]) -> list[str]:
    """Return the code cells of a notebook in order, with every solution replaced.

    `answer = expr` becomes `answer = ...`. If a solution assigns several names, the names that
    appear later in the notebook are kept, or at least the last name. Raises CourseError for a
    solution that isn't valid Python and for misplaced markers.
    """
    later: set[str] = set()
    cut = []
    for source in reversed(sources):
        text, names = _cut(source, later)
        later |= names
        cut.append(text)
    return cut[::-1]


def _cut(source: str, later: set[str]) -> tuple[str, set[str]]:
    """Return the learner's cell and all names in it."""
    names: set[str] = set()
    kept: list[list[str]] = []
    # Start at the end, because a stub keeps the names that the rest of the cell uses.
    for is_solution, lines in reversed(list(_segments(source))):
        if is_solution:
            lines = [YOUR_TURN] if source.startswith("%%") else _stub(lines, later | names)
        names |= set(re.findall(r"\b[A-Za-z_]\w*\b", "\n".join(lines)))
        kept.append(lines)
    return "\n".join(line for lines in reversed(kept) for line in lines), names


def _segments(source: str) -> Iterator[tuple[bool, list[str]]]:
    """Yield the pieces of the cell in order: whether each is a solution, and its lines."""
    inside, lines = False, []
    for line in source.split("\n"):
        mark = line.strip()
        if mark not in (BEGIN, END):
            lines.append(line)
            continue
        if inside is (mark == BEGIN):
            raise CourseError(f"`{mark}` is misplaced in the cell that starts with {source[:40]!r}")
        yield inside, lines
        inside, lines = mark == BEGIN, []
    yield inside, lines


def _stub(lines: list[str], later: set[str]) -> list[str]:
    """Return the text that replaces a solution, with its names set to `...`."""
    code = textwrap.dedent("\n".join(lines))
    indent = next((line[: len(line) - len(line.lstrip())] for line in lines if line.strip()), "")
    try:
        body = ast.parse(code).body
    except SyntaxError as error:
        raise CourseError(
            f"the solution that starts with {code[:40]!r} isn't valid Python: {error.msg}"
        ) from None
    names = list(dict.fromkeys(_assigned(body)))
    kept = [name for name in names if name in later] or names[-1:]
    if kept:
        return [f"{indent}{name} = ..." for name in kept]
    return [
        f"{indent}return ..."
        if any(isinstance(node, ast.Return) for node in body)
        else f"{indent}..."
    ]


def _assigned(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that these statements assign or define, in order, except names inside
    functions.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif not isinstance(
            node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
        ):
            yield from _assigned(ast.iter_child_nodes(node))
