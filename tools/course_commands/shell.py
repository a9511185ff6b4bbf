"""The simple commands in a shell text, found without running anything.

OPAQUE stands for text that only a run would show, such as the value of a variable or the output of
a command. Anything more than simple commands (loops over words, arrays, functions) is left to the
runs of the lessons and job scripts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

OPAQUE = "\0"
"""Stands in a word for unknown text."""

_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?(.*)\n(?:.*\n)*?\s*\1$", re.MULTILINE)
_ARRAY = re.compile(r"\b\w+\+?=\([^()]*\)")
_TEST = re.compile(r"\[\[.*?\]\]")
_FUNCTION = re.compile(r"\b\w+ ?\(\) ?\{")
_ARITHMETIC = re.compile(r"\$\(\([^)]*\)\)|\$?\(\([^)]*\)\)")
_NESTED = re.compile(r"[$<]\(([^()]*)\)|(?<!\\)`([^`]*)`")
_VARIABLE = re.compile(r"\$\{[^{}]*\}|\$\w+|\$[@*#?!$-]")
_DESCRIPTOR = re.compile(r"(?<=\s)(?:[012]|&)(?=[<>])|(?<=[<>])&(?=\d)")
_SHOWS_REFUSAL = re.compile(r"\|\|\s*(?:true|:)\s*$|\|\s*grep\s+[\"']?Fatal\b", re.MULTILINE)
_OPERATOR = re.compile(r"[;&|()<>]+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_SKIPPED = re.compile(
    r"if|then|elif|else|fi|do|done|while|until|[{}!]|time|export|declare|local|readonly"
)
_NOT_READ = frozenset(("for", "case", "esac"))


@dataclass(frozen=True)
class Command:
    """One simple command: its words, and whether it may be refused because the line shows the
    refusal.

    whole    -- False for a command that prose shortens: required words may be missing.
    variable -- name of the variable in which the words were stored.
    """

    words: tuple[str, ...]
    may_fail: bool = False
    whole: bool = True
    variable: str = ""


def commands_in(text: str) -> Iterator[Command]:
    """The commands of a shell text. Raises ValueError for a quote that is never closed."""
    text = _HEREDOC.sub(r"\2", text.replace("\\\n", "  "))
    for pattern in (_ARRAY, _FUNCTION, _TEST):
        text = pattern.sub(" ", text)
    text = _ARITHMETIC.sub(OPAQUE, text)
    nested: list[str] = []
    while found := _NESTED.search(text):
        nested.append(found[1] or found[2] or "")
        text = text[: found.start()] + OPAQUE + text[found.end() :]
    for part in (text, *nested):
        for line, words in _lines(_DESCRIPTOR.sub("", _VARIABLE.sub(OPAQUE, part))):
            yield from _simple(words, may_fail=bool(_SHOWS_REFUSAL.search(line)))


def _lines(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each line with its words; lines belong together as long as a quote is open. Raises ValueError
    for a quote that is never closed.
    """
    begun = ""
    for line in text.splitlines():
        begun = f"{begun}\n{line}" if begun else line
        reader = shlex.shlex(begun, posix=True, punctuation_chars=";&|()<>")
        reader.whitespace_split = True
        try:
            yield begun, list(reader)
        except ValueError:
            continue
        begun = ""
    if begun:
        raise ValueError(f"a quote is never closed: {begun.strip()}")


def _simple(words: list[str], may_fail: bool) -> Iterator[Command]:
    """The simple commands of a line; the value of a variable counts as a command that is not
    whole.
    """
    own: list[str] = []
    into_file = False
    for word in [*words, ";"]:
        if _OPERATOR.fullmatch(word):
            into_file = word.strip("<>") == ""
            if not into_file:
                if own and own[0] not in _NOT_READ:
                    yield Command(tuple(own), may_fail)
                own = []
        elif into_file:
            into_file = False
        elif not own and (found := _ASSIGNMENT.fullmatch(word)):
            if found[2]:
                yield Command(tuple(found[2].split()), may_fail, whole=False, variable=found[1])
        elif own or not _SKIPPED.fullmatch(word):
            own.append(word)
