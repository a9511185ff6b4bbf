"""Where commands stand: in cells, code blocks, inline code, texts of exercises, job scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.standins.tools import MODULE_OF_TOOL
from tools.course_commands.reading import is_tool, to_check
from tools.course_commands.shell import Command, Script, read_script
from tools.course_commands.tables import tables
from tools.course_commands.words import OPAQUE, Value

if TYPE_CHECKING:
    from nbformat import NotebookNode

SHELLS = ("bash", "sh", "shell", "console")
"""Languages of code blocks that hold commands. A block without one does if a line of it begins with a tool."""

USAGE = "usage"
"""Language of code blocks that hold commands as help texts show them: `tool FILE [--option a|b]   explanation`."""

SHARED_SCRIPTS = ("site.sh", "common.sh", "launch.sh")
"""What job scripts source, in this order."""

_CELL_MAGIC = re.compile(r"%%(bash|sh)\b.*\n?")
_ANGLES = re.compile(r"<[A-Za-z][^<>|&;\n]*>")
_BRACES = re.compile(r"\{[^{}\n]*\}")
_ELLIPSIS = re.compile(r"(?:(?<=\s)|^)(?:\.\.\.|…)(?=\s|$)|(?<=\w)(?:\.\.\.|…)(?=\s|$)")
_ENVIRONMENT = re.compile(r"(?:[A-Z][A-Z0-9_]*=(?:\"[^\"]*\"|'[^']*'|\S*)\s+)*")
_INLINE = re.compile(r"`([^`\n]+)`")
_SHOWS_REFUSAL = re.compile(r"\|\s*grep\s+[\"']?Fatal\b")
"""A pipe for the line in which a tool says why it refuses."""


def of_cell(cell: NotebookNode) -> Iterator[Command]:
    """Commands in one cell of a notebook; their lines count from the cell's first."""
    if cell.cell_type == "markdown":
        yield from of_markdown(cell.source)
    elif found := _CELL_MAGIC.match(cell.source):
        yield from of_shell(cell.source[found.end() :])
    elif cell.cell_type == "code" and not cell.source.startswith("%%"):
        yield from of_python(cell.source)


def of_shell(text: str) -> list[Command]:
    """Commands of a shell text. What ends in `|| true`, or is searched for Fatal, may be refused by its tool."""
    commands = to_check(read_script(_ANGLES.sub(OPAQUE, text)))
    lines = re.sub(r"\\\n", "  ", text).splitlines()
    shown = {number for number, line in enumerate(lines, start=1) if _SHOWS_REFUSAL.search(line)}
    return [replace(command, may_fail=command.may_fail or command.line in shown) for command in commands]


def of_markdown(text: str) -> Iterator[Command]:
    """Commands in a page's code blocks and inline code."""
    for token in markdown_tokens(text):
        first = token.map[0] + 1 if token.map else 1
        if token.type in ("fence", "code_block"):
            for command in _of_block(token.info.strip(), token.content):
                yield replace(command, line=first + command.line)
        for part in token.children or ():
            if part.type == "code_inline":
                yield from (replace(command, line=first) for command in mentioned(part.content))


def markdown_tokens(text: str) -> list:
    """The text as markdown-it reads it, with tables."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").parse(text)


def _of_block(language: str, text: str) -> Iterator[Command]:
    if language == USAGE:
        for number, line in enumerate(text.splitlines(), start=1):
            yield from (replace(command, line=number) for command in of_usage(line))
    elif language in SHELLS or (not language and any(_begins_with_tool(line) for line in text.splitlines())):
        yield from of_shell(text)


def of_usage(line: str) -> Iterator[Command]:
    """The command in a line such as `tool FILE [--option a|b]   explanation`."""
    text = re.split(r"\s{2,}", line.strip())[0]
    text = re.sub(r"(?<=[\w])\[[^]]*\]", "", text)  # OUT.json[.gz]
    text = re.sub(r"(\w)(?:\|[\w.]+)+", r"\1", text.replace("[", "").replace("]", ""))
    yield from mentioned(text)


def mentioned(text: str) -> Iterator[Command]:
    """Commands in inline code; nothing where it does not begin with a tool and a second word."""
    if not _begins_with_tool(text):
        return
    try:
        commands = read_script(_ELLIPSIS.sub("", _ANGLES.sub(OPAQUE, text))).commands
    except ValueError:
        return
    for command in commands:
        if command.words and len(command.words) > 1 and (is_tool(command.words[0]) or _is_prefix(command.words[0])):
            yield replace(command, whole=False)


def _is_prefix(word: str) -> bool:
    return word in tables().prefixes


def _begins_with_tool(text: str) -> bool:
    words = text[_ENVIRONMENT.match(text).end() :].split()
    return len(words) > 1 and (is_tool(words[0]) or (_is_prefix(words[0]) and is_tool(words[1])))


def of_python(source: str) -> Iterator[Command]:
    """Commands in a Python text: shell lines, lines of texts that begin with a tool, inline code."""
    kept = []
    for number, line in enumerate(source.splitlines(), start=1):
        if line.lstrip().startswith("!"):
            text = _BRACES.sub(OPAQUE, line.lstrip()[1:])
            yield from (replace(command, line=number) for command in read_script(text).commands)
        kept.append("" if line.lstrip().startswith(("!", "%")) else line)
        if line.lstrip().startswith("#"):
            for found in _INLINE.finditer(line):
                yield from (replace(command, line=number) for command in mentioned(found[1]))
    try:
        tree = ast.parse("\n".join(kept))
    except SyntaxError:  # the rule valid-python reports it
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (replace(command, line=node.lineno) for command in _of_text(node.value))


def _of_text(text: str) -> Iterator[Command]:
    """Commands in a text for readers: inline code, and lines that are commands, commented out or not."""
    for found in _INLINE.finditer(text):
        yield from mentioned(found[1])
    lines = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        words = line.split()
        if len(words) > 1 and (words[1].startswith("-") or (words[0] in MODULE_OF_TOOL and "--" in words)):
            yield from mentioned(line)


def of_job_script(path: Path, shared: Mapping[str, Value]) -> tuple[Script, list[Command]]:
    """What a job script holds, with the variables of the scripts that it sources, and all its commands.

    Its header counts as options of sbatch, and a comment's usage lines as commands.
    """
    text = path.read_text(encoding="utf-8")
    script = read_script(text, shared)
    more = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#SBATCH "):
            more.append(Command(["sbatch", *line.split()[1:]], number, whole=False))
        elif re.match(r"#\s{2,}\S", line):
            more += [replace(command, line=number) for command in of_usage(line[1:])]
    return script, to_check(script) + more


def shared_variables(folder: Path) -> tuple[dict[str, Value], frozenset[str]]:
    """The variables and the functions that job scripts in a folder get from the scripts that they source."""
    variables: dict[str, Value] = {}
    functions: set[str] = set()
    for name in SHARED_SCRIPTS:
        script = read_script((folder / name).read_text(encoding="utf-8"), variables)
        variables, functions = script.variables, functions | script.functions
    return variables, frozenset(functions)
