"""Every command that the course shows, checked against the tools' own tables of options, so that
none is wrong.

Cells and job scripts are run, on stand-ins that are as strict as the tools. This check finds faults
that no run meets: commands in prose, tables and exercises, the options of launchers, and a wrong
command in the middle of a cell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.case import command as case_command
from proflab.standins.tools import MODULE_OF_TOOL
from tools.course_commands.reading import is_tool, read_command, tables
from tools.course_commands.shell import OPAQUE, Command, commands_in

if TYPE_CHECKING:
    from nbformat import NotebookNode

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
EXERCISES = "lessons/*/exercises.py"
SCRIPTS = ("scripts/slurm/*.sh", "snippets/*.sh")

SHELLS = ("bash", "sh", "shell", "console")
"""Languages of code blocks that hold commands. A block without a language holds commands if one of
its lines begins with a tool.
"""

USAGE = "usage"
"""Language of code blocks with commands as help texts show them: `tool FILE [--option a|b]
explanation`.
"""

_CELL_MAGIC = re.compile(r"%%(bash|sh)\b.*\n?")
_ANGLES = re.compile(r"<[A-Za-z][^<>|&;\n]*>")
_BRACES = re.compile(r"\{[^{}\n]*\}")
_ELLIPSIS = re.compile(r"(?:(?<=\s)|^)(?:\.\.\.|…)(?=\s|$)|(?<=\w)(?:\.\.\.|…)(?=\s|$)")
_ENVIRONMENT = re.compile(r"(?:[A-Z][A-Z0-9_]*=(?:\"[^\"]*\"|'[^']*'|\S*)\s+)*")
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Use:
    """A command in its place: its tools from the outside in, and the faults of the command."""

    path: Path
    line: int
    text: str
    tools: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {'; '.join(self.problems)}: {self.text}"


Found = Iterator[tuple[int, Command]]
"""Commands, each with the line in which its text begins."""


def uses_in_cell(cell: NotebookNode, path: Path) -> Iterator[Use]:
    """Commands in one cell; lines count from the cell's first line."""
    yield from _uses(path, of_cell(cell))


def uses_in_files(course: Path) -> Iterator[Use]:
    """Commands in the README and in docs, in the texts of exercises, in job scripts and
    snippets.
    """
    for patterns, of_text in (
        (DOCUMENTS, of_markdown),
        ((EXERCISES,), of_python),
        (SCRIPTS, of_script),
    ):
        for path in sorted(found for pattern in patterns for found in course.glob(pattern)):
            yield from _uses(path, of_text(path.read_text(encoding="utf-8")), course)


def _uses(path: Path, commands: Found, course: Path | None = None) -> Iterator[Use]:
    try:
        for line, command in commands:
            reading = read_command(command, course)
            text = " ".join(command.words).replace(OPAQUE, "…")
            yield Use(path, line, text, tuple(reading.tools), tuple(reading.problems))
    except ValueError as error:
        yield Use(path, 0, "", (), (f"a shell can't read this: {error}",))


def of_cell(cell: NotebookNode) -> Found:
    """Commands in one cell of a notebook."""
    if cell.cell_type == "markdown":
        yield from of_markdown(cell.source)
    elif found := _CELL_MAGIC.match(cell.source):
        yield from ((1, command) for command in of_shell(cell.source[found.end() :]))
    elif cell.cell_type == "code" and not cell.source.startswith("%%"):
        yield from of_python(cell.source)


def of_shell(text: str) -> Iterator[Command]:
    """Commands of a shell text, without texts in variables that are neither a command nor options
    of a tool.
    """
    for command in commands_in(_ANGLES.sub(OPAQUE, text.replace("$CASE", case_command("00")))):
        if (
            not command.variable
            or command.variable in tables()["variables"]
            or is_tool(command.words[0])
        ):
            yield command


def of_markdown(text: str) -> Found:
    """Commands in a page's code blocks and inline code."""
    for token in markdown_tokens(text):
        first = token.map[0] + 1 if token.map else 1
        if token.type in ("fence", "code_block"):
            yield from (
                (first, command) for command in _of_block(token.info.strip(), token.content)
            )
        for part in token.children or ():
            if part.type == "code_inline":
                yield from ((first, command) for command in mentioned(part.content))


def markdown_tokens(text: str) -> list:
    """The tokens that markdown-it makes of the text, with tables."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").parse(text)


def _of_block(language: str, text: str) -> Iterable[Command]:
    if language == USAGE:
        return [command for line in text.splitlines() for command in of_usage(line)]
    if language in SHELLS or (
        not language and any(_begins_with_tool(line) for line in text.splitlines())
    ):
        return of_shell(text)
    return ()


def of_usage(line: str) -> Iterator[Command]:
    """The command in a line such as `tool FILE [--option a|b]   explanation`."""
    text = re.split(r"\s{2,}", line.strip())[0]
    text = re.sub(r"(?<=[\w])\[[^]]*\]", "", text)  # OUT.json[.gz]
    yield from mentioned(
        re.sub(r"(\w)(?:\|[\w.]+)+", r"\1", text.replace("[", "").replace("]", ""))
    )


def mentioned(text: str) -> Iterator[Command]:
    """Commands in inline code; none if it does not begin with a tool and a second word."""
    if not _begins_with_tool(text):
        return
    try:
        commands = list(commands_in(_ELLIPSIS.sub("", _ANGLES.sub(OPAQUE, text))))
    except ValueError:
        return
    for command in commands:
        if len(command.words) > 1 and (
            is_tool(command.words[0]) or command.words[0] in tables()["prefixes"]
        ):
            yield replace(command, whole=False)


def _begins_with_tool(text: str) -> bool:
    words = text[_ENVIRONMENT.match(text).end() :].split()
    return len(words) > 1 and (
        is_tool(words[0]) or (words[0] in tables()["prefixes"] and is_tool(words[1]))
    )


def of_python(source: str) -> Found:
    """Commands in a Python text: shell lines, lines of texts that begin with a tool, inline
    code.
    """
    kept = []
    for number, line in enumerate(source.splitlines(), start=1):
        magic = line.lstrip()[:1]
        if magic == "!":
            yield from (
                (number, command) for command in commands_in(_BRACES.sub(OPAQUE, line.lstrip()[1:]))
            )
        if magic == "#":
            yield from (
                (number, command)
                for found in _INLINE.finditer(line)
                for command in mentioned(found[1])
            )
        kept.append("" if magic in ("!", "%") else line)
    try:
        tree = ast.parse("\n".join(kept))
    except SyntaxError:  # the rule valid-python reports it
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, command) for command in _of_text(node.value))


def _of_text(text: str) -> Iterator[Command]:
    """Commands in a text for readers: inline code, and lines that are commands, commented out or
    not.
    """
    for found in _INLINE.finditer(text):
        yield from mentioned(found[1])
    lines = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        words = line.split()
        if len(words) > 1 and (
            words[1].startswith("-") or (words[0] in MODULE_OF_TOOL and "--" in words)
        ):
            yield from mentioned(line)


def of_script(text: str) -> Found:
    """The tools' commands in a job script; its header counts as options of sbatch, the usage in a
    comment as a command.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#SBATCH "):
            yield number, Command(("sbatch", *line.split()[1:]), whole=False)
        elif re.match(r"#\s{2,}\S", line):
            yield from ((number, command) for command in of_usage(line[1:]))
    for command in of_shell(text):
        words = command.words
        if len(words) > 1 and (
            command.variable or is_tool(words[0]) or words[0] in tables()["prefixes"]
        ):
            yield 1, command
