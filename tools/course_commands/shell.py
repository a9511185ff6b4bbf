"""The simple commands in a shell text, read and never run.

Variables that the text itself sets are put in, loops over words run through all of them. What only a run could tell,
such as the output of a command, stands as OPAQUE; an array that is not known stands for no word at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.course_commands.words import Value, WordReader

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^]\s]*\])?\+?=")
_DECLARING = frozenset(("declare", "export", "local", "readonly"))
_SKIPPED = frozenset(("if", "then", "elif", "else", "fi", "do", "while", "until", "{", "}", "!", "time"))
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_REDIRECTION = re.compile(r"(\d*|&)(<<<|>>|<&|>&|>\||<|>)[ \t]*")


@dataclass
class Command:
    """One simple command: its words, the line it begins in, and whether what follows `|| true` forgives a failure.

    whole    -- False for a command that other words may follow, or that prose shortens.
    variable -- the name of the variable in which the words were stored, where they were not run.
    """

    words: list[str]
    line: int
    whole: bool = True
    may_fail: bool = False
    variable: str = ""


@dataclass
class Script:
    """What a text holds: commands in order, the variables it sets, the functions it defines."""

    commands: list[Command] = field(default_factory=list)
    variables: dict[str, Value] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)


def read_script(text: str, variables: Mapping[str, Value] | None = None) -> Script:
    """The commands of a shell text; `variables` are known beforehand. Raises ValueError for what is never closed."""
    reader = _Reader(text, Script(variables=dict(variables or {})))
    reader.read()
    return reader.script


class _Reader(WordReader):
    """Goes through a text command by command, and again through the body of a loop for each of its words."""

    def __init__(self, text: str, script: Script, first_line: int = 1) -> None:
        super().__init__(text, script.variables, self._read_nested)
        self.script = script
        self.first_line = first_line
        self.begin = 0
        self.words: list[str] = []
        self.chain: list[Command] = []
        self.after_or = False
        self.heredocs: list[str] = []
        self.loops: list[tuple[str, list[str], int]] = []
        self.cases = 0
        self.in_pattern = False

    def read(self) -> None:
        while self.place < len(self.text):
            self._next()
            if self.place >= len(self.text):
                self._end_command("\n")  # which goes back to the begin of a loop that ends here

    def _next(self) -> None:
        here = self.text[self.place]
        if self.in_pattern and here not in " \t\n#":
            self._skip_pattern()
        elif here in " \t":
            self.place += 1
        elif self.text.startswith("\\\n", self.place):
            self.place += 2
        elif here == "#":
            self.place = self.end_of_line()
        elif found := _HEREDOC.match(self.text, self.place):
            self.heredocs.append(found[2])
            self.place = found.end()
        elif (found := _REDIRECTION.match(self.text, self.place)) and self.text[found.end() : found.end() + 1] != "(":
            self.place = found.end()
            self.word()
        elif here in "<>":
            self.place += 1
            self.words.append(self.substitution())
        elif here in "\n;&|()":
            self._operator()
        elif not self.words and self.text.startswith(("[[", "(("), self.place):
            self.skip_to("]]" if here == "[" else "))")
        else:
            self._read_word()

    def _operator(self) -> None:
        for operator in (";;", "&&", "||", "|&", "\n", ";", "&", "|", "(", ")"):
            if self.text.startswith(operator, self.place):
                self.place += len(operator)
                break
        if operator == "(" and len(self.words) == 1 and self.text[self.place : self.place + 1] == ")":
            self.script.functions.add(self.words.pop())
            self.place += 1
            return
        self._end_command(operator)
        if operator == "\n":
            self._skip_heredocs()
        if operator == ";;" and self.cases > 0:
            self.in_pattern = True

    def _end_command(self, operator: str) -> None:
        words, self.words = self.words, []
        if words and words[0] == "done":
            self._repeat_loop()
        elif words and words[0] == "for" and words[2:3] == ["in"]:
            self.loops.append((words[1], words[3:], self.place))
            self._next_round()
        elif words and words[0] == "case":
            self.cases += 1
        elif words and words[0] == "esac":
            self.cases -= 1
        elif words:
            self._add(words)
            if words[0] in ("local", "read"):
                for name in words[1:]:
                    self.variables.pop(name, None)
        if operator not in ("|", "|&", "||", "&&"):
            self.chain = []
        self.after_or = operator == "||"

    def _add(self, words: list[str]) -> None:
        if self.after_or and words in (["true"], [":"]):
            for command in self.chain:
                command.may_fail = True
        line = self.first_line + self.text.count("\n", 0, self.begin)
        command = Command(words, line)
        self.chain.append(command)
        self.script.commands.append(command)

    def _next_round(self) -> bool:
        name, values, place = self.loops.pop()
        if not values:
            return False
        self.variables[name] = values[0]
        self.loops.append((name, values[1:], place))
        return True

    def _repeat_loop(self) -> None:
        if self.loops and self._next_round():
            self.place = self.loops[-1][2]

    def _read_word(self) -> None:
        if not self.words:
            self.begin = self.place
        settable = not self.words or self.words[0] in _DECLARING
        if settable and (found := _ASSIGNMENT.match(self.text, self.place)):
            self.place = found.end()
            self._assign(found[1], adding=found[0].endswith("+="))
            return
        fields = self.word()
        if not self.words and fields and fields[0] in _SKIPPED:
            return
        if self.words[:1] == ["case"] and fields == ["in"]:
            self._end_command("\n")
            self.in_pattern = True
            return
        self.words += fields

    def _assign(self, name: str, adding: bool) -> None:
        if self.text.startswith("(", self.place):
            self.place += 1
            value: Value = self.array()
            command = value
        else:
            value = " ".join(self.word(splitting=False))
            command = value.split()
        if command:
            line = self.first_line + self.text.count("\n", 0, self.begin)
            self.script.commands.append(Command(list(command), line, whole=False, variable=name))
        before = self.variables.get(name)
        if adding and isinstance(value, list):
            value = [*(before if isinstance(before, list) else ()), *value]
        self.variables[name] = value

    def _read_nested(self, text: str) -> None:
        line = self.first_line + self.text.count("\n", 0, self.place)
        _Reader(text, self.script, line).read()

    def _skip_pattern(self) -> None:
        self.in_pattern = False
        if re.compile(r"esac\b").match(self.text, self.place) is None:
            self.skip_to(")")

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            found = re.compile(rf"^\s*{end}$", re.MULTILINE).search(self.text, self.place)
            self.place = found.end() if found else len(self.text)
        self.heredocs = []
