"""Words of a shell text: quotes, variables and lists, without running anything."""

from __future__ import annotations

import re
from collections.abc import Callable

OPAQUE = "\0"
"""Stands in a word for text that is not known."""

END_OF_WORD = frozenset(" \t\n;&|<>()")

Value = str | list[str]
"""Of a variable: a text, or the members of an array."""

_NAME = re.compile(r"\$(\w+|[@*#?$!-])")
_PARAMETER = re.compile(r"(\w+|[@*#?$!-])(\[[^]]*\])?(.*)", re.DOTALL)
_OTHERWISE = re.compile(r":?[-+=]")


class WordReader:
    """Reads words from `place` on, and leaves `place` behind them.

    nested -- is given the commands inside a word, whose output would become part of it.
    """

    def __init__(self, text: str, variables: dict[str, Value], nested: Callable[[str], None]) -> None:
        self.text = text
        self.place = 0
        self.variables = variables
        self.nested = nested

    def word(self, splitting: bool = True) -> list[str]:
        """The fields that one word becomes; none for an array that is not known."""
        fields, started = [""], False
        while self.place < len(self.text) and self.text[self.place] not in END_OF_WORD:
            here = self.text[self.place]
            if here in "\"'":
                found = self._quoted(here)
                started = started or found != []
                _join(fields, found)
            elif here in "$`":
                found = self._expansion()
                if isinstance(found, str) and splitting and OPAQUE not in found:
                    found = found.split()
                _join(fields, found)
            elif here == "\\":
                fields[-1] += self.text[self.place + 1 : self.place + 2].replace("\n", "")
                self.place += 2
            else:
                fields[-1] += here
                self.place += 1
        return [text for text in fields if text or started]

    def array(self) -> list[str]:
        """All words up to a closing bracket, which is left behind."""
        words: list[str] = []
        while self.place < len(self.text) and self.text[self.place] != ")":
            if self.text[self.place] == "#":
                self.place = self.end_of_line()
            elif self.text[self.place] in END_OF_WORD:
                self.place += 1
            else:
                words += self.word()
        self.place += 1
        return words

    def _quoted(self, quote: str) -> Value:
        """What stands in quotes here; no field at all for nothing but an empty list, as in "$@"."""
        begin = self.place = self.place + 1
        if quote == "'":
            self.skip_to("'")
            return self.text[begin : self.place - 1]
        fields, empty_list = [""], False
        while self.text[self.place : self.place + 1] != quote:
            if self.place >= len(self.text):
                raise ValueError("a quote never ends")
            here = self.text[self.place]
            if here in "$`":
                found = self._expansion()
                empty_list = empty_list or found == []
                _join(fields, found)
                continue
            self.place += here == "\\"
            fields[-1] += self.text[self.place : self.place + 1].replace("\n", "") if here == "\\" else here
            self.place += 1
        self.place += 1
        return [] if empty_list and fields == [""] else fields

    def _expansion(self) -> Value:
        """The value of what begins with a dollar or a backquote here."""
        text, place = self.text, self.place
        if text[place] == "`":
            end = text.index("`", place + 1)
            self.nested(text[place + 1 : end])
            self.place = end + 1
            return OPAQUE
        if text.startswith("$((", place):
            self.skip_to("))")
            return OPAQUE
        if text.startswith("$(", place):
            self.place += 1
            return self.substitution()
        if text.startswith("${", place):
            return self._parameter()
        found = _NAME.match(text, place)
        if found is None:
            self.place += 1
            return "$" if text[place + 1 : place + 2] != "'" else ""
        self.place = found.end()
        return self._value(found[1], several=found[1] in "@*")

    def substitution(self) -> str:
        """Reads what stands in parentheses here as commands of their own."""
        begin = self.place + 1
        self.place = _closing(self.text, self.place, "(", ")")
        self.nested(self.text[begin : self.place - 1])
        return OPAQUE

    def _parameter(self) -> Value:
        begin = self.place + 2
        self.place = _closing(self.text, self.place + 1, "{", "}")
        found = _PARAMETER.fullmatch(self.text[begin : self.place - 1])
        if found is None:
            return OPAQUE
        name, index, rest = found[1], found[2] or "", found[3]
        operator = _OTHERWISE.match(rest)
        if operator and (operator[0][-1] == "+" or name not in self.variables):
            return WordReader(f"{rest[operator.end() :]})", self.variables, self.nested).array()
        if rest and not operator:
            return OPAQUE
        return self._value(name, several=name in "@*" or index in ("[@]", "[*]"))

    def _value(self, name: str, several: bool) -> Value:
        value = self.variables.get(name)
        if value is None:
            return [] if several and name not in "@*" else OPAQUE
        if isinstance(value, list) and not several:
            return value[0] if value else ""
        return value

    def skip_to(self, end: str) -> None:
        """Go behind the next `end`. Raises ValueError where there is none."""
        found = self.text.find(end, self.place)
        if found < 0:
            raise ValueError(f"{end} is missing")
        self.place = found + len(end)

    def end_of_line(self) -> int:
        """The place of the next line break."""
        found = self.text.find("\n", self.place)
        return len(self.text) if found < 0 else found


def _join(fields: list[str], more: Value) -> None:
    """Continue the last field; a list's first member continues it, the others begin their own."""
    if isinstance(more, str):
        fields[-1] += more
    elif more:
        fields[-1] += more[0]
        fields += more[1:]


def _closing(text: str, place: int, opening: str, closing: str) -> int:
    """The place behind the bracket that closes the one at `place`; quoted ones do not count."""
    depth, quote = 0, ""
    while place < len(text):
        here = text[place]
        if here == "\\":
            place += 1
        elif quote:
            quote = "" if here == quote else quote
        elif here in "\"'":
            quote = here
        elif here == opening:
            depth += 1
        elif here == closing:
            depth -= 1
            if depth == 0:
                return place + 1
        place += 1
    raise ValueError(f"{opening} is never closed")
