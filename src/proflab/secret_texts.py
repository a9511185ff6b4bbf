"""Where a text holds secrets and addresses, told by the names in front of them and by how they look."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
