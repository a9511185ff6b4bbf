"""Find commands that their tool would reject in lessons, job scripts, snippets and pages.

Only the profilers in the replay tool, the trainer, proflab and tidyprof are checked, by their
parsers.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.case import command as case_command
from proflab.tapes.options import TOOLS
from proflab.tapes.requests import parse
from tidyprof.errors import UserError

if TYPE_CHECKING:
    from nbformat import NotebookNode

MODULES = {
    "cifar_train": "cifar_train.config",
    "proflab": "proflab.__main__",
    "tidyprof": "tidyprof.cli.main",
}
"""Modules with a `build_parser`, by the course's program."""

SCRIPTS = ("scripts/slurm/*.sh", "scripts/slurm/mpi/*.sh", "snippets/*.sh")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")

_SHELL_CELL = re.compile(r"%%(?:bash|sh)\b.*\n|!")
_BLOCK = re.compile(r"^```(.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ARRAY = re.compile(r"=\([^()]*\)")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_NO_COMMAND = re.compile(r"\b(?:need|command -v) ")
_INLINE = re.compile(r"`([^`\n]+)`")
_NAMES = "|".join(map(re.escape, TOOLS))
_START = re.compile(rf"(?<![\w./'\"=-])(?:{_NAMES}|python3? -m (?:{'|'.join(MODULES)}))(?= )")
_END = re.compile(r" (?:\d?>|&>|<|\||&)|[;)]")
_FREE = re.compile(r"\"?\$(?:\{\w+\[@\]\}|@)\"?|\.\.\.|…")
_VARIABLE = re.compile(r"\$\{[^}]*\}|\$\w+|%(?:env\{\w+\}|\w+)%")


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a known tool in a shell text. Variables become 1."""
    text = text.replace("$EXAMPLE", case_command("00")).replace("\\\n", " ")
    text = _ARRAY.sub(lambda found: found[0].replace("\n", " "), text)
    for line in text.splitlines():
        bare = _COMMENT.sub("", line)
        found = _START.search(bare)
        if not found or _NO_COMMAND.search(bare):
            continue
        own = _VARIABLE.sub("1", _FREE.sub("", _END.split(bare[found.start() :])[0]))
        with contextlib.suppress(ValueError):  # another line closes the quote
            words = shlex.split(own)
            yield [*words, "python"] if words[-1] == "--" else words


def problem(words: Sequence[str]) -> str:
    """Return why the tool's followed release rejects a command, or "" if it accepts it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            program = list(words)
            if words[0] in TOOLS:
                _, program = parse(words[0], words[1:])
            module = program[2] if program[1:2] == ["-m"] else ""
            if module in MODULES:
                import_module(MODULES[module]).build_parser().parse_args(program[3:])
    except SystemExit as end:
        found = said.getvalue().strip().splitlines()[-1] if end.code else ""
    except UserError as error:
        found = str(error)
    else:
        found = ""
    return "" if "invalid choice: '1'" in found else found  # 1 replaces a variable


def problems_in_text(text: str) -> Iterator[str]:
    """Yield problems with the commands in a shell text."""
    for words in commands_in(text):
        if found := problem(words):
            yield f"{found}: {shlex.join(words)}"


def problems_in_page(text: str) -> Iterator[str]:
    """Yield problems with the commands in Markdown.

    Prose may shorten a command, so inline code is only checked for options that the tool lacks.
    """
    for language, block in _BLOCK.findall(text):
        if language in ("", "bash", "console", "sh", "shell"):
            yield from problems_in_text(block)
    for code in _INLINE.findall(_BLOCK.sub("", text)):
        yield from (one for one in problems_in_text(code) if "unrecognized arguments" in one)


def problems_in_cell(cell: NotebookNode) -> Iterator[str]:
    """Yield problems with the commands in one notebook cell."""
    if cell.cell_type == "markdown":
        yield from problems_in_page(cell.source)
    elif found := _SHELL_CELL.match(cell.source):
        yield from problems_in_text(cell.source[found.end() :])


def problems_in_files(course: Path) -> Iterator[str]:
    """Yield problems with commands in job scripts, snippets and pages."""
    for patterns, problems in ((SCRIPTS, problems_in_text), (PAGES, problems_in_page)):
        for path in sorted(found for pattern in patterns for found in course.glob(pattern)):
            for one in problems(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(course)}: {one}"
