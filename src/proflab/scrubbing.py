"""Takes out of a recording what it says of people and machines: names, paths, tokens, environments.

What is hidden gets letters of the same length in its place, so that binary formats stay what they are; the same word
gets the same letters in all files. Packets that are compressed inside of a file are not looked into. Secrets and
addresses are told by the names in front of them and by how they look.
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from cifar_train.errors import UserError
from tidyprof.io.byte_stream import SQLITE_MAGIC

GZIP_MAGIC = b"\x1f\x8b"

_LEAST_SECRET = 6
"""Characters of the shortest value that is taken for a secret: `1` and `yes` are none."""

_EVERYWHERE = {"root", "localhost"}
"""Names of users and hosts that tell nothing."""

_SYSTEM = ("opt", "usr", "lib", "lib64", "bin", "sbin", "etc", "dev", "proc", "sys", "run")
_ROOTS = ("home", "root", "tmp", "scratch")
"""Folders at the top of a file system that are the same everywhere, and those that are a site's own. More of a site's
are in its environment; what begins with them is a path whatever stands before, such as a length in a binary file."""

_ENVIRONMENT = re.compile(r'"env(?:iron(?:ment)?)?(?:_?var(?:iable)?s)?"\s*:\s*(?=[\[{])', re.IGNORECASE)
_JSON_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')
_SMALL_NUMBER = re.compile(r"\d{0,5}")
"""Values of an environment that stay: ranks, by which readers tell processes apart."""


_HOSTS = re.compile(r"HOST(?:NAME)?|MASTER_ADDR|(?:SLURMD?|PBS|LSB)_\w*(?:HOST|HOSTS|HOSTNAME|NODELIST|NODENAME)")
"""Environment variables that name machines."""

_LEAST_LETTERS = 3
"""Letters of a machine's name whose numbers stand for those of its neighbours: node17 and node18, but not c1 and c2."""

_SEALED = (b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh", b"7z\xbc\xaf\x27\x1c")
"""How files begin that are packed by zip, zstd, xz, bzip2 and 7-Zip, into which this module cannot look."""


class Scrubber:
    """Hides what tells of people and machines, as far as it can be recognised in texts and in SQLite's tables.

    Names: of hosts and their neighbours, of this user, e-mail, IP and hardware addresses, serial numbers. Secrets:
    values of variables, options and members whose names say so, tokens, private keys, passwords in URLs. Paths, and all
    values of environments.
    """

    def __init__(self, hosts: Iterable[str], environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        users = {environment.get("USER", ""), environment.get("LOGNAME", "")}
        with suppress(KeyError, OSError):
            users.add(getpass.getuser())
        users -= _EVERYWHERE
        lists = [value for name, value in environment.items() if _HOSTS.fullmatch(name)]
        known = {*hosts, socket.gethostname(), *re.findall(r"(?:[\w.-]|\[[\d,-]+\])+", "\n".join(lists))} - _EVERYWHERE
        machines = known | {host.partition(".")[0] for host in known}
        secrets = {value for name, value in environment.items() if SECRET_NAMES.search(name)}
        words = [rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])" for word in _neighbours(machines)]
        words += [rf"(?<!\w){word}(?!\w)" for word in _patterns(users)]
        words += _patterns(value for value in secrets if len(value) >= _LEAST_SECRET)
        self._words = re.compile("|".join([*words, TOKENS]))
        roots = {*_ROOTS, *re.findall(r"(?:^|(?<=:))/([\w.-]+)/", "\n".join(environment.values()), re.MULTILINE)}
        parts, own, systems = r"[\w.+@%~-]+", "|".join(_patterns(roots - {*_SYSTEM})), "|".join(_SYSTEM)
        self._path = re.compile(rf"(?:/(?:{own})|(?<![\w./\\-])/(?!(?:{systems})/){parts})(?:/{parts})+")
        self._covers: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The text without what is to be hidden, as long as before."""
        pieces, end = [], 0
        for found in _ENVIRONMENT.finditer(text):
            if found.start() < end:
                continue  # part of the one before
            with suppress(ValueError):
                _, behind = json.JSONDecoder(strict=False).raw_decode(text, found.end())
                pieces += [text[end : found.end()], self._values(text[found.end() : behind])]
                end = behind
        shown = self._without_secrets("".join([*pieces, text[end:]]))
        return self._words.sub(self._cover, self._path.sub(self._cover_path, shown))

    def content(self, path: Path) -> bytes:
        """What a file holds, without what is to be hidden; packed where it is. Raises UserError where it cannot be."""
        return self._cleaned(path.read_bytes(), path)

    def _cleaned(self, content: bytes, path: Path) -> bytes:
        if content.startswith(_SEALED):
            raise UserError(f"{path} is packed in a way that names and paths cannot be found in; leave it out")
        if content.startswith(GZIP_MAGIC):
            try:
                inside = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise UserError(f"{path} cannot be unpacked to clear it of names ({error}); leave it out") from error
            return gzip.compress(self._cleaned(inside, path), mtime=0)
        return self._database(content, path) if content.startswith(SQLITE_MAGIC) else self._bytes(content)

    def _bytes(self, content: bytes) -> bytes:
        # One character for each byte, whatever the encoding.
        return self.text(content.decode("latin-1")).encode("latin-1")

    def _database(self, content: bytes, path: Path) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            copy.write_bytes(content)
            try:
                with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                    self._update(connection)
            except sqlite3.Error as error:
                raise UserError(f"{path} cannot be cleared of names and paths ({error}); leave it out") from error
            return copy.read_bytes()

    def _update(self, connection: sqlite3.Connection) -> None:
        hide = {"environment": self._values, "machine_id": self._letters}  # columns of ROCprofiler-SDK's databases
        connection.create_function(
            "hidden", 2, lambda column, text: self._bytes(hide.get(column, str)(text).encode()).decode()
        )
        for table, column in _columns(connection):
            hidden = f"hidden('{column}', \"{column}\")"
            connection.execute(f'UPDATE "{table}" SET "{column}" = {hidden} WHERE typeof("{column}") = \'text\'')
        connection.execute("VACUUM")  # texts of before stay in the file until then

    def _cover(self, found: re.Match[str]) -> str:
        return self._letters(found[0])

    def _without_secrets(self, text: str) -> str:
        pieces, end = [], 0
        for start, behind in secrets_in(text):
            value = text[start:behind]
            # A number without quotes has to stay one, or JSON would be none; lines stay lines.
            cover = "1".ljust(len(value), "0") if value.isdecimal() else re.sub(r"\S+", self._cover, value)
            pieces += [text[end:start], cover]
            end = behind
        return "".join([*pieces, text[end:]])

    def _values(self, environment: str) -> str:
        """An environment in JSON without its values."""

        def cover(found: re.Match[str]) -> str:
            is_shown = found[2] or _SMALL_NUMBER.fullmatch(found[1])
            return found[0] if is_shown else f'"{self._letters(found[1])}"'

        return _JSON_TEXT.sub(cover, environment)

    def _cover_path(self, found: re.Match[str]) -> str:
        *folders, last = found[0].split("/")
        return "/".join([*map(self._letters, folders), last if "." in last.strip(".") else self._letters(last)])

    def _letters(self, word: str) -> str:
        """As many letters as the word has, the same for the same word."""
        if word not in self._covers:
            number, letters = len(self._covers), []
            for _ in word:
                number, digit = divmod(number, 26)
                letters.append(string.ascii_lowercase[digit - 3])  # 0 is an x
            self._covers[word] = "".join(reversed(letters))
        return self._covers[word]


def _patterns(words: Iterable[str]) -> list[str]:
    """Regular expressions of words as they stand in bytes and in JSON, the longest first."""
    kept = {form.encode().decode("latin-1") for word in words for form in (word, json.dumps(word)[1:-1]) if word}
    return [re.escape(word) for word in sorted(kept, key=lambda word: (-len(word), word))]


def _neighbours(hosts: Iterable[str]) -> list[str]:
    """Patterns of machines' names, the longest first; any number of as many digits: node17, Slurm's node[01-16]."""
    patterns = []
    for host in sorted(hosts, key=lambda host: (-len(host), host)):
        letters = sum(map(str.isalpha, host))
        if letters >= _LEAST_LETTERS:
            patterns.append("".join(map(_piece, re.findall(r"\[[\d,-]+\]|\d+|\D", host))))
        elif letters:
            patterns.append(re.escape(host))
    return patterns


def _piece(piece: str) -> str:
    numbers = [len(number) for number in re.findall(r"\d+", piece)]
    return rf"\d{{{min(numbers)},{max(numbers)}}}" if numbers else re.escape(piece)


def _columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Table and column of all that holds data."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    names = [name for (name,) in connection.execute(tables)]
    return [(name, column[1]) for name in names for column in connection.execute(f'PRAGMA table_info("{name}")')]


_WORDS = (
    r"PASSW|PASSPHRASE|SECRET|TOKEN(?!IZ)|CREDENTIAL|COOKIE|AUTHORIZATION|WEBHOOK|CONNECTION[_-]?STRING"
    r"|(?:API|ACCESS|PRIVATE|SIGNING)[_-]?KEY"
)
"""Parts of a name that make its value secret, wherever they stand in it."""

SECRET_NAMES = re.compile(rf"{_WORDS}|(^|_)(KEY|AUTH)|(^|_)(PASS|PAT)(_|$)|_PWD(_|$)", re.IGNORECASE)
"""Environment variables whose values are secret; PWD alone is a folder."""

TOKENS = (
    r"(?:hf_|gh[pousr]_|github_pat_|glpat-|npm_|pypi-|xox[a-z]-|\bsk-|AKIA|ASIA)[\w-]{16,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+|(?<=hooks\.slack\.com/)[\w/-]+|(?<=Bearer )[\w.~+/-]{8,}=*"
    r"|(?<=Basic )(?=[A-Za-z+/]*[\d=]|[A-Za-z]*[a-z][A-Z])[A-Za-z\d+/]{8,}=*"
)
"""How tokens of Hugging Face, GitHub, GitLab, npm, PyPI, Slack, OpenAI and AWS begin, JSON web tokens, Slack's
webhooks, and what follows `Bearer` and `Basic`, where it is no word."""

_HEX = r"[\da-fA-F]"
_ADDRESSES = (
    re.compile(r"[1-9](?<![\w.].)(?<!==.)(?!(?<=1)27\.)\d{1,2}(?:\.\d{1,3}){3}(?!\.?\w)"),
    re.compile(
        rf"{_HEX}(?<![\w:].)(?:{_HEX}(?::{_HEX}{{2}}){{5}}|{_HEX}{{3}}(?::{_HEX}{{4}}){{3}}|{_HEX}{{0,3}}(?::{_HEX}{{1,4}}){{7}}"
        rf"|{_HEX}{{0,3}}(?::{_HEX}{{1,4}})+::(?:{_HEX}{{1,4}}:){{0,5}}{_HEX}{{0,4}}|(?<=f)(?:e80|[cd]{_HEX}{{2}})::[\da-fA-F:]+)"
        r"(?![\w:])"
    ),
)
"""IPv4 (versions have small first numbers, or follow `==`); Ethernet, InfiniBand and IPv6."""

_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[A-Za-z\d-]+(?:\.[A-Za-z\d-]+)*\.[A-Za-z]{2,}(?!\w)")

_SEEDS = (
    "passw", "passphrase", "secret", "token", "credential", "cookie", "authorization", "webhook", "connection", "api",
    "access", "private", "signing", "_pwd", "_pass", "_pat", "_key", "_auth", "serial", "unique", "machine",
)  # fmt: skip
"""How a name in `_NAMED` begins: finding these first is much quicker than trying those patterns everywhere."""

_SHORT = r"(?<=[A-Z\d])_(?:PWD|PASS|PAT|KEY|AUTH)(?:_[A-Z\d_]*)?"
_QUOTE, _REST = r"\\*[\"']", r"[^\s\"'\\\x00-\x1f]"
_NAMED = (
    re.compile(
        rf"(?:(?i:{_WORDS})(?:[A-Z\d_]*|(?i:(?:ord|d)?s?(?:[_-](?:id|key|value))?))|{_SHORT}"
        r"|(?i:serial(?:[ _-]?(?:number|num|no))?|unique[ _-]?id|machine[ _-]?id))"
        rf"(?:{_QUOTE})?[ \t]{{0,9}}(?:=(?!=)|:(?!:))[ \t]{{0,9}}(?P<quote>{_QUOTE})?"
        r"(?:(?:Basic|Bearer|Token|Digest) +)?"
        r"(?P<value>(?(quote)[^\x00-\x1f]{1,9999}?(?<!\\)(?=(?P=quote))|[^\s\"'\\,;&<>(){}\[\]\x00-\x1f]+))"
    ),
    re.compile(rf"(?:(?:{_WORDS})[A-Z\d_]*|{_SHORT})=(?!=)(?P<value>{_REST}+)"),
    re.compile(rf"(?i:(?<=[-_])(?:{_WORDS})[\w-]*) +(?P<value>(?!-){_REST}+)"),
)
"""A secret or a serial number behind its name: as JSON and text write it; of a variable, up to the next blank; of an
option. The longest counts."""

_AROUND = (
    re.compile(rf"://(?P<value>(?:(?![/<>]){_REST})+)@"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?P<value>(?:[\w+/=:,.\s]|\\[nr]|-(?!----))+)"),
)
"""User and password of a URL; a private key."""

_NO_SECRET = re.compile(r"true|false|null|none|yes|no|on|off|\d{1,5}|[+-]?\d*\.\d*(?:[eE][+-]?\d+)?", re.IGNORECASE)


def secrets_in(text: str) -> list[tuple[int, int]]:
    """Start and end of each secret and each address in a text, in order; they do not overlap."""
    spans = [found.span("value") for pattern in _AROUND for found in pattern.finditer(text)]
    spans += [found.span() for pattern in _ADDRESSES for found in pattern.finditer(text)]
    if "@" in text:
        spans += [found.span() for found in _MAIL.finditer(text)]
    spans += _named(text)
    apart: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def _named(text: str) -> Iterator[tuple[int, int]]:
    for place in _places(text):
        spans = [found.span("value") for pattern in _NAMED if (found := pattern.match(text, place))]
        if not spans:
            continue
        start, end = max(spans, key=lambda span: span[1])
        value = text[start:end]
        is_count = value.isdecimal() and text[place : place + 5].lower() == "token"
        if not is_count and not _NO_SECRET.fullmatch(value):
            yield start, end


def _places(text: str) -> Iterator[int]:
    folded = text.lower()
    if len(folded) != len(text):  # a few letters become two
        folded = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    for seed in _SEEDS:
        place = folded.find(seed)
        while place >= 0:
            yield place
            place = folded.find(seed, place + 1)
