"""Removes from a recording what it tells of people and machines: names, paths, tokens,
environments.

Hidden text is replaced by as many letters, so that binary formats stay valid; the same word gets
the same letters in all files. A file with a part that cannot be read is refused, by name.
"""

from __future__ import annotations

import getpass
import gzip
import json
import os
import re
import socket
import sqlite3
import string
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

from proflab.sealed import sealed_part
from proflab.telltales import SECRET_NAMES, Places, Span, apart, blanked, secrets_in
from tidyprof.errors import UserError
from tidyprof.io.byte_stream import SQLITE_MAGIC

GZIP_MAGIC = b"\x1f\x8b"

_LEAST_SECRET = 6
"""Number of characters of the shortest value that is taken for a secret: `1` and `yes` are none."""

_EVERYWHERE = {"root", "localhost"}
"""Names of users and hosts that tell nothing."""

_SYSTEM = ("opt", "usr", "lib", "lib64", "bin", "sbin", "etc", "dev", "proc", "sys", "run")
_ROOTS = ("home", "root", "tmp", "scratch")
"""Folders at the top of a file system: those that are the same everywhere, and those that are a
site's own. The environment names more folders of a site; a text that begins with one of them is a
path, whatever is before it, such as a length in a binary file.
"""

_ENVIRONMENT = re.compile(
    r'"env(?:iron(?:ment)?)?(?:_?var(?:iable)?s)?"\s*:\s*(?=[\[{])', re.IGNORECASE
)
_JSON_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')
_SMALL_NUMBER = re.compile(r"\d{0,5}")
"""Values of an environment that are kept: small numbers such as ranks, by which readers tell
processes apart.
"""


_HOSTS = re.compile(
    r"HOST(?:NAME)?|MASTER_ADDR|(?:SLURMD?|PBS|LSB)_\w*(?:HOST|HOSTS|HOSTNAME|NODELIST|NODENAME)"
)
"""Environment variables that name machines."""

_LEAST_LETTERS = 3
"""Number of letters from which a machine's name stands for its neighbours', too, with other
numbers: node17 and node18, but not c1 and c2.
"""

_LEAST_USER = 4
"""Number of letters from which a user's name is also looked for inside other words, and in
capitals: many words hold `al`.
"""

_ALONE, _BESIDE_DIGITS = (
    rf"(?:(?<![A-Za-z{digits}])|(?<=%[\dA-Fa-f]{{2}}))" for digits in (r"\d", "")
)
"""What may be before a name; also %20 and the like, in a URL."""

_BEFORE_IN_CODE, _BEHIND_IN_CODE = re.compile(r"(?:::|_Z)\w*$"), re.compile(r"\w*::")
_LONG_NAME = 200
"""Number of characters before a word in which the beginning of a C++ name is looked for."""

_WINDOWS_PART = r"[^\\/:*?\"<>|\x00-\x1f]"
_WINDOWS_PATH = re.compile(
    rf"(?<![A-Za-z0-9])(?:[A-Za-z]:|(?<!\\)\\{{2,}}[A-Za-z][\w.-]*)\\+(?:{_WINDOWS_PART}+\\+)*"
    rf"(?:(?![\s']){_WINDOWS_PART})*"
)
_NO_ESCAPE = re.compile(r'\\\\|\\[^"\\/bfnrtu]')
"""Signs that backslashes separate folders: two in a row do so in JSON, and a single one that is not
before one of these letters.
"""


class Scrubber:
    """Hides what tells of people and machines, as far as texts and SQLite's tables show it.

    Names: of hosts and their neighbours, of this user, e-mail, IP and hardware addresses, serial
    numbers. Secrets: values of variables, options and members whose names tell so, tokens, private
    keys, passwords in URLs. Paths, and all values of environments.
    """

    def __init__(self, hosts: Iterable[str], environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        users = {environment.get("USER", ""), environment.get("LOGNAME", "")}
        with suppress(KeyError, OSError):
            users.add(getpass.getuser())
        users -= _EVERYWHERE
        lists = [value for name, value in environment.items() if _HOSTS.fullmatch(name)]
        known = {
            *hosts,
            socket.gethostname(),
            *re.findall(r"(?:[\w.-]|\[[\d,-]+\])+", "\n".join(lists)),
        } - _EVERYWHERE
        machines = known | {host.partition(".")[0] for host in known}
        secrets = {value for name, value in environment.items() if SECRET_NAMES.search(name)}
        words = {_neighbours(host) for host in machines if any(map(str.isalpha, host))}
        words |= {(word, rf"(?<!\w){re.escape(word)}(?!\w)") for word in _forms(users)}
        words |= {(word, re.escape(word)) for word in _forms(secrets) if len(word) >= _LEAST_SECRET}
        long = {
            (word, rf"{_BESIDE_DIGITS}(?i:{re.escape(word)})(?![A-Za-z])") for word in _forms(users)
        }
        self._words = [(word.lower(), re.compile(pattern)) for word, pattern in sorted(words)]
        self._users = [
            (word.lower(), re.compile(pattern))
            for word, pattern in sorted(long)
            if len(word) >= _LEAST_USER
        ]
        roots = {
            *_ROOTS,
            *re.findall(r"(?:^|(?<=:))/([\w.-]+)/", "\n".join(environment.values()), re.MULTILINE),
        }
        parts, own, systems = (
            r"[\w.+@%~-]+",
            "|".join(map(re.escape, sorted(roots - {*_SYSTEM}))),
            "|".join(_SYSTEM),
        )
        # JSON may write \/ for a slash.
        self._path = re.compile(
            rf"(?:/(?:{own})|(?<![\w./\\-])\\*/(?!(?:{systems})\\*/){parts})(?:\\*/{parts})+"
        )
        self._covers: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The text with private parts hidden, as long as before."""
        pieces, end = [], 0
        for found in _ENVIRONMENT.finditer(text):
            if found.start() < end:
                continue  # part of the one before
            with suppress(ValueError):
                _, behind = json.JSONDecoder(strict=False).raw_decode(text, found.end())
                pieces += [text[end : found.end()], self._values(text[found.end() : behind])]
                end = behind
        shown = "".join([*pieces, text[end:]])
        shown = _covered(shown, secrets_in(blanked(shown)), self._cover_secret)
        shown = _WINDOWS_PATH.sub(self._cover_windows_path, shown)
        shown = _covered(shown, _found(self._path, blanked(shown)), self._cover_path)
        return _covered(shown, self._names_in(shown), self._letters)

    def content(self, path: Path) -> bytes:
        """The content of a file with private parts hidden, packed as it was. Raises UserError if it
        cannot be hidden.
        """
        return self._cleaned(path.read_bytes(), path)

    def _cleaned(self, content: bytes, path: Path) -> bytes:
        if content.startswith(GZIP_MAGIC):
            try:
                inside = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise UserError(
                    f"{path} cannot be unpacked to clear it of names ({error}); leave it out"
                ) from error
            # Without the time, the same content gives the same bytes.
            return gzip.compress(self._cleaned(inside, path), mtime=0)
        if content.startswith(SQLITE_MAGIC):
            return self._database(content, path)
        if sealed := sealed_part(content):
            raise UserError(
                f"{path} is packed in a way that names and paths cannot be found in ({sealed});"
                " leave it out"
            )
        return self._bytes(content)

    def _bytes(self, content: bytes) -> bytes:
        # One character for each byte, whatever the encoding.
        return self.text(content.decode("latin-1")).encode("latin-1")

    def _database(self, content: bytes, path: Path) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            copy.write_bytes(content)
            try:
                with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                    self._update(connection, path)
            except sqlite3.Error as error:
                raise UserError(
                    f"{path} cannot be cleared of names and paths ({error}); leave it out"
                ) from error
            return copy.read_bytes()

    def _update(self, connection: sqlite3.Connection, path: Path) -> None:
        for name, definition in connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        ):
            if any(self._bytes(text.encode()) != text.encode() for text in (name, definition)):
                raise UserError(
                    f"{path} holds names, paths or secrets in the definition of a table or view;"
                    " leave it out"
                )
        # Columns of ROCprofiler-SDK's databases.
        hide = {"environment": self._values, "machine_id": self._letters}
        packed = {}

        def hidden(column: str, value: str | bytes) -> str | bytes:
            if isinstance(value, str):
                return self._bytes(hide.get(column, str)(value).encode()).decode()
            if sealed := sealed_part(value):
                packed[column] = sealed
            return self._bytes(value)

        connection.create_function("hidden", 2, hidden)
        for table, column in _columns(connection):
            connection.execute(
                f'UPDATE "{table}" SET "{column}" = hidden(\'{column}\', "{column}") '
                f"WHERE typeof(\"{column}\") IN ('text', 'blob')"
            )
        for column, sealed in packed.items():
            raise UserError(
                f"{path} holds values of {column} that nobody can look into ({sealed}); leave"
                " it out"
            )
        connection.execute("VACUUM")  # until then the old texts stay in the file

    def _names_in(self, text: str) -> list[Span]:
        """Places of names of machines and users, and of secrets of this environment."""
        plain = blanked(text)
        places = Places(plain)
        users = [
            span
            for word in self._users
            for span in places.spans(*word)
            if not _is_in_code(plain, *span)
        ]
        # Also in the text itself: \b in CORP\bob is no escape.
        forms = [places] if plain == text else [places, Places(text)]
        return apart(chain(users, *(form.spans(*word) for form in forms for word in self._words)))

    def _cover_secret(self, value: str) -> str:
        # A number without quotes has to stay a number, or the JSON would break; lines stay lines.
        if value.isdecimal():
            return "1".ljust(len(value), "0")
        return re.sub(r"\S+", lambda found: self._letters(found[0]), value)

    def _values(self, environment: str) -> str:
        """An environment in JSON with its values hidden."""

        def cover(found: re.Match[str]) -> str:
            is_shown = found[2] or _SMALL_NUMBER.fullmatch(found[1])
            return found[0] if is_shown else f'"{self._letters(found[1])}"'

        return _JSON_TEXT.sub(cover, environment)

    def _cover_path(self, path: str) -> str:
        *folders, last = re.split(r"(\\*/)", path)
        covered = [part if part.endswith("/") else self._letters(part) for part in folders]
        return "".join([*covered, last if "." in last.strip(".") else self._letters(last)])

    def _cover_windows_path(self, found: re.Match[str]) -> str:
        if not _NO_ESCAPE.search(found[0]):
            return found[0]
        *folders, last = re.split(r"(\\+)", found[0])
        # The letter of a drive tells nothing, but the name of a server does.
        start = 2 if found[0][1] == ":" else 0
        covered = [part if "\\" in part else self._letters(part) for part in folders[start // 2 :]]
        return "".join(
            [
                *folders[: start // 2],
                *covered,
                last if "." in last.strip(".") else self._letters(last),
            ]
        )

    def _letters(self, word: str) -> str:
        """As many letters as the word has, the same for the same word."""
        if word not in self._covers:
            number, letters = len(self._covers), []
            for _ in word:
                number, digit = divmod(number, 26)
                letters.append(string.ascii_lowercase[digit - 3])  # 0 is an x
            self._covers[word] = "".join(reversed(letters))
        return self._covers[word]


def _found(pattern: re.Pattern[str], text: str) -> list[Span]:
    return [found.span() for found in pattern.finditer(text)]


def _covered(text: str, spans: Iterable[Span], cover: Callable[[str], str]) -> str:
    """The text with these places covered."""
    pieces, end = [], 0
    for start, behind in spans:
        pieces += [text[end:start], cover(text[start:behind])]
        end = behind
    return "".join([*pieces, text[end:]])


def _is_in_code(text: str, start: int, end: int) -> bool:
    """Whether the word there is part of a name in C++, as in `at::native::alice_in_chains`, and so
    no user.
    """
    return bool(
        _BEFORE_IN_CODE.search(text, max(0, start - _LONG_NAME), start)
        or _BEHIND_IN_CODE.match(text, end)
    )


def _forms(words: Iterable[str]) -> set[str]:
    """The words as they are in bytes and in JSON."""
    return {
        form.encode().decode("latin-1")
        for word in words
        if word
        for form in (word, json.dumps(word)[1:-1])
    }


def _neighbours(host: str) -> tuple[str, str]:
    """The beginning of a machine's name, and its pattern with other numbers of as many digits:
    node17, node[01-16].
    """
    if sum(map(str.isalpha, host)) < _LEAST_LETTERS:
        return host, rf"{_ALONE}{re.escape(host)}(?![A-Za-z\d])"
    pattern = "".join(map(_piece, re.findall(r"\[[\d,-]+\]|\d+|\D", host)))
    return re.split(r"[\[\d]", host)[0], rf"{_ALONE}(?i:{pattern})(?![A-Za-z\d])"


def _piece(piece: str) -> str:
    numbers = [len(number) for number in re.findall(r"\d+", piece)]
    return rf"\d{{{min(numbers)},{max(numbers)}}}" if numbers else re.escape(piece)


def _columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Table and column of all that holds data."""
    names = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    return [
        (name, column[1])
        for name in names
        for column in connection.execute(f'PRAGMA table_info("{name}")')
    ]
