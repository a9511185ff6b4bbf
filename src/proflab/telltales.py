"""How secrets, addresses and paths look in texts, each pattern with its meaning.

A letter of an escape (`\\n` in JSON, `\\x1b[32m` of a colour) is no part of the word after it:
apply `blanked` first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

Span = tuple[int, int]

_NEXT_LINE = "\x85"
"""Stands for an escaped end of line: `\\s` matches it, and it is no control character, which would
end a quoted text.
"""

_ESCAPES = re.compile(
    # Colours, raw or escaped.
    r"(?:\x1b|(?<!\\)\\+(?:u001[bB]|x1[bB]|033|e))(?:\[[\d;:?]*[A-Za-z]|[()][A-Z\d])"
    r"|(?<!\\)\\+(?P<line>[nr])|(?<!\\)\\+(?:[abfntv0]|u[\da-fA-F]{4}|x[\da-fA-F]{2}|[0-7]{3})"
)


def blanked(text: str) -> str:
    """The text with blanks in place of colours and escapes of JSON, Python and C: of the same
    length, with words that stand alone.
    """
    if "\\" not in text and "\x1b" not in text:
        return text
    return _ESCAPES.sub(lambda found: (_NEXT_LINE if found["line"] else " ") * len(found[0]), text)


# Secrets that are known by how they look

TOKENS = {
    "hf_": r"[\w-]{16,}",
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), r"[\w-]{16,}"),
    **dict.fromkeys(("glpat-", "glrt-", "gldt-", "glcbt-", "glptt-", "gloas-"), r"[\w.-]{16,}"),
    **dict.fromkeys(("npm_", "pypi-", "dckr_pat_", "dckr_oat_"), r"[\w-]{16,}"),
    **dict.fromkeys(
        ("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"),
        r"[\w-]{16,}",
    ),
    **dict.fromkeys(
        ("xapp-", "nvapi-", "GOCSPX-", "hvs.", "hvb.", "dop_v1_", "ATATT"), r"[\w=-]{16,}"
    ),
    **dict.fromkeys(("sk-", "gsk_", "r8_"), r"(?<![A-Za-z\d].{3})[\w-]{16,}"),
    **dict.fromkeys(("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"), r"[A-Za-z\d]{16,}"),
    **dict.fromkeys(("AKIA", "ASIA"), r"[A-Z\d]{12,}"),
    **dict.fromkeys(("shpat_", "shpss_", "shpca_", "shppa_"), r"[\w-]{16,}"),
    "AIza": r"[\w-]{30,}",
    "ya29.": r"[\w.-]{8,}",
    "SG.": r"(?<![A-Za-z\d].{3})[\w-]{8,}\.[\w-]{8,}",
    "eyJ": r"[\w-]{10,}\.[\w-]{10,}\.[\w-]*",
    ":AA": r"(?<=\d.{3})[\w-]{33}(?![\w-])",
    "hooks.slack.com/": r"(?P<value>[\w/-]+)",
    "/api/webhooks/": r"(?P<value>\d+/[\w-]+)",
    **dict.fromkeys(("webhook.office.com/", "outlook.office.com/"), r"(?P<value>[\w/@.-]+)"),
    "Bearer ": r"(?P<value>[\w.~+/-]{8,}=*)",
    "Basic ": r"(?P<value>(?=[A-Za-z+/]*[\d=]|[A-Za-z]*[a-z][A-Z])[A-Za-z\d+/]{8,}=*)",
}
"""Beginning of a token -> the pattern of its rest: of Hugging Face, GitHub, GitLab, package
registries, Slack, NVIDIA, Google, Vault, DigitalOcean, Atlassian, OpenAI and Anthropic, Groq,
Replicate, Stripe, AWS, Shopify, Google again, SendGrid, JSON web tokens, Telegram's bots, webhooks
of Slack, Discord and Teams, and HTTP headers, unless a word follows.
"""

# Addresses

_HEX, _BYTE = r"[\da-fA-F]", r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ALONE, _END = r"(?<![A-Za-z\d.:].)", r"(?![A-Za-z\d]|\.\d)"
"""Checks after the first letter of an address: that letter is found more quickly than the text
before it.
"""

ADDRESSES = {
    "IPv4; 127 is every machine's own, and a version follows ==": (
        rf"[1-9](?<![A-Za-z\d.].)(?<!==.)(?!(?<=1)27\.)\d"
        rf"(?:(?<=1\d)\d|(?<=2[0-4])\d|(?<=25)[0-5])?(?:\.{_BYTE}){{3}}{_END}"
    ),
    "IPv4 with a first number below 10, as versions have: with a number of three digits, or a "
    "port or a mask behind": (
        rf"[1-9](?<![A-Za-z\d.=-].)(?=[\d.]*\.[12]\d\d(?!\d)|[\d.]*[:/]\d)(?:\.{_BYTE}){{3}}{_END}"
    ),
    "IPv4 in the name of a host, as AWS writes it": (
        rf"ip(?<![A-Za-z\d].{{2}})(?:-{_BYTE}){{4}}(?![\d-])"
    ),
    "Ethernet, InfiniBand": rf"{_HEX}{_ALONE}{_HEX}(?::{_HEX}{{2}}){{5,}}(?![A-Za-z\d:])",
    "Ethernet as Windows writes it": (
        rf"{_HEX}(?<![A-Za-z\d-].){_HEX}(?:-{_HEX}{{2}}){{5}}(?![A-Za-z\d-])"
    ),
    "Ethernet as switches write it; without a letter it may be a version": (
        rf"{_HEX}{_ALONE}(?:(?<=[a-fA-F])|(?=[\d.]*[a-fA-F]))"
        rf"{_HEX}{{3}}\.{_HEX}{{4}}\.{_HEX}{{4}}(?![A-Za-z\d]|\.\w)"
    ),
    "the GUID of an InfiniBand card as Linux writes it": (
        rf"{_HEX}{_ALONE}{_HEX}{{3}}(?::{_HEX}{{4}}){{3}}(?![A-Za-z\d:])"
    ),
    "IPv6": (
        rf"{_HEX}{_ALONE}(?:{_HEX}{{0,3}}(?::{_HEX}{{1,4}}){{7}}"
        rf"|{_HEX}{{0,3}}(?::{_HEX}{{1,4}})+::(?:{_HEX}{{1,4}}:){{0,5}}{_HEX}{{0,4}}"
        rf"|(?:(?<=f)(?:e80|[cd]{_HEX}{{2}})|(?<=[23]){_HEX}{{3}})::[\da-fA-F:]+)(?![A-Za-z\d:])"
    ),
}

_LOW_ADDRESS = re.compile(rf"[1-9](?<![A-Za-z\d.-].)(?<!==.)(?:\.{_BYTE}){{3}}{_END}")
_SPOKEN_OF = re.compile(
    r"(?://|@|(?<![A-Za-z])(?:inet|addr|address|host|hostname|ip|ipv4|server|peer|node|gateway"
    r"|nameserver|via|from|to|at|on|connect)(?:\\*[\"'])?[\s:=]{1,9}(?:\\*[\"'])?)$",
    re.IGNORECASE,
)
"""An IPv4 address that could be a version, and the text before one that is an address."""

_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[A-Za-z\d-]+(?:\.[A-Za-z\d-]+)*\.[A-Za-z]{2,}(?!\w)")

# Secrets behind their names

_WORDS = (
    r"PASSW|PASSPHRASE|SECRET|TOKEN(?!IZ)|CREDENTIAL|COOKIE|AUTHORIZATION|WEBHOOK"
    r"|CONNECTION[_-]?STRING|(?:API|ACCESS|PRIVATE|SIGNING|ACCOUNT)[_-]?KEY|SHARED[_-]?ACCESS"
)
"""Parts of a name that make its value secret, wherever they are in it."""

SECRET_NAMES = re.compile(
    rf"{_WORDS}|(^|_)(KEY|AUTH)|(^|_)(PASS|PAT)(_|$)|_PWD(_|$)", re.IGNORECASE
)
"""Environment variables whose values are secret; PWD alone is a folder."""

_SHORT = r"(?<=[A-Z\d])_(?:PWD|PASS|PAT|KEY|AUTH)(?:_[A-Z\d_]{0,60})?"
_QUOTE, _REST = r"\\*[\"']", r"[^\s\"'\\\x00-\x1f]"
_OF_A_MACHINE = r"(?i:serial(?:[ _-]?(?:number|num|no))?|unique[ _-]?id|machine[ _-]?id|uuid)"
_VARIABLE = rf"(?:(?:{_WORDS})[A-Z\d_]{{0,60}}|{_SHORT})"
_HEADER_REST = rf"(?![\[{{])(?:[^\n{_NEXT_LINE}\"'\\\x00-\x08]|(?<==)\\*\"[^\"\n{_NEXT_LINE}]*\")+"
_SIGN = r"(?::=|=>|=(?!=)|:(?!:))"
_QUOTED = r"(?(quote)(?!(?P=quote))[^\x00-\x1f]{1,9999}?(?<!\\)(?=(?P=quote))"
_VALUE = rf"(?P<quote>{_QUOTE})?(?P<value>{_QUOTED}|{_REST}+))"

NAMED_SEEDS = (
    "passw",
    "passphrase",
    "secret",
    "token",
    "credential",
    "cookie",
    "authorization",
    "webhook",
    "connection",
    "api",
    "access",
    "private",
    "signing",
    "account",
    "shared",
    "_pwd",
    "_pass",
    "_pat",
    "_key",
    "_auth",
    "serial",
    "unique",
    "machine",
    "uuid",
)
"""Beginnings of the names in `NAMED`: to find these first is much quicker than to try the patterns
everywhere.
"""

NAMED = {
    "as JSON, TOML and text write it": (
        rf"(?:(?i:{_WORDS})"
        r"(?:[A-Z\d_]{0,60}|(?i:(?:ord|d)?s?(?:[_-](?:access[_-]key|id|key|value))?))"
        rf"|{_SHORT}|{_OF_A_MACHINE})(?:{_QUOTE})?[ \t]{{0,40}}{_SIGN}"
        rf"[ \t]{{0,40}}(?P<quote>{_QUOTE})?"
        r"(?:(?:Basic|Bearer|Token|Digest) +)?"
        rf"(?P<value>{_QUOTED}|[^\s\"'\\,;&<>(){{}}\[\]\x00-\x1f]+))"
    ),
    "of a variable, up to the next blank": rf"{_VARIABLE}=(?!=)(?P<value>{_REST}+)",
    "of a variable in a row of a table": (
        rf"{_VARIABLE}(?:{_QUOTE})?(?:[ \t]*(?:\||\xe2\x94\x82|\u2502|\t)|,)[ \t]*(?![-|]){_VALUE}"
    ),
    "of a variable whose name and value are two members": (
        rf"(?:(?i:{_WORDS})[\w-]{{0,60}}|{_SHORT})(?:{_QUOTE})?[\s,][^{{}}]{{0,80}}?"
        rf"(?i:\bvalue)(?:{_QUOTE})?\s*[:=]\s*{_VALUE}"
    ),
    "of an option": rf"(?<=[-_])(?i:{_WORDS})[\w-]{{0,60}} +(?![-=:|]){_VALUE}",
    "of an option in a list of arguments": (
        rf"(?<=-)(?i:{_WORDS})[\w-]{{0,60}}(?P<quote>{_QUOTE})\s*,\s*(?P=quote)"
        rf"(?P<value>{_QUOTED}|))"
    ),
    "of an element of XML": rf"(?i:{_WORDS})[\w-]{{0,60}}>(?P<value>[^<>\x00-\x1f]+)(?=</)",
}
"""A secret, or a number of a machine, after its name; if several patterns match, the one that ends
last counts.
"""

_ON = rf"[^\n;|&{_NEXT_LINE}]{{0,300}}?(?<=[ \"'])"
_APART = rf"(?:[ =]|{_QUOTE}\s*,\s*{_QUOTE})\s*"
_PAIR = r"(?!\d+:\d+\b)[^\s:\"'\\-][^\s:\"'\\]*:[^\s\"'\\]+"

AROUND = (
    {
        "user and password of a URL": ("://", rf"://(?P<value>(?:(?![/<>]){_REST})+)@"),
        "a private key": (
            "-----begin",
            (
                r"-----BEGIN [A-Z ]*PRIVATE KEY(?:"
                r" BLOCK)?-----(?P<value>(?:[\w+/=:,.\s]|\\[nr]|-(?!----))+)"
            ),
        ),
        "all cookies of a header": ("cookie:", rf"(?i:cookie): *(?P<value>{_HEADER_REST})"),
        "all parts of a header": (
            "authorization:",
            rf"(?i:authorization): *\w+ +(?P<value>{_HEADER_REST})",
        ),
        "the user in .netrc": (
            "login",
            rf"(?<!\w)login\s+(?P<value>{_REST}+)(?=\s+(?:account\s+\S+\s+)?password\s)",
        ),
        "the password in .netrc": (
            "login",
            rf"(?<!\w)login\s+{_REST}+\s+(?:account\s+\S+\s+)?password\s+(?P<value>{_REST}+)",
        ),
        "the same without a user": (
            "machine",
            rf"(?<!\w)machine\s+{_REST}+\s+password\s+(?P<value>{_REST}+)",
        ),
        "npm's for a registry": ("_auth", rf"(?<![A-Za-z\d])_auth\s*=\s*(?P<value>{_REST}+)"),
        "user and password of Docker's registries": (
            "auth",
            rf"(?<=[\"'])auth{_QUOTE}\s*:\s*(?P<quote>{_QUOTE})(?P<value>{_QUOTED}|))",
        ),
        "a signature in a URL of Azure": (
            "sig=",
            r"(?<![A-Za-z])(?i:sig)=(?P<value>[^\s&\"'\\;,<>]+)",
        ),
        "a signature in a URL of AWS or Google": (
            "signature=",
            r"(?i:signature)=(?P<value>[^\s&\"'\\;,<>]+)",
        ),
        "user and password of an option": (
            "user",
            rf"(?<=-)user{_APART}(?:{_QUOTE})?(?P<value>{_PAIR})",
        ),
        "user and password of a short option": (
            "-u",
            rf"(?<![\w-])-[uU]{_APART}(?:{_QUOTE})?(?P<value>{_PAIR})",
        ),
        "the same without a blank, for curl": (
            "curl",
            rf"curl\b{_ON}-u(?:{_QUOTE})?(?P<value>{_PAIR})",
        ),
        "cookies for curl": ("curl", rf"curl\b{_ON}-b{_APART}{_VALUE}"),
        **{
            # After a letter only `NodeGUID` counts: `replica` is none, and times have 16 digits,
            # too.
            f"a number of a machine behind {name}": (
                name,
                rf"(?:(?<![A-Za-z])|(?=[gG]))(?i:{name})s?[\"'\s:=]{{1,9}}"
                rf"(?P<value>{number})(?!\w)",
            )
            for number, names in {
                rf"(?:0x(?!0000)|(?=\d*[a-fA-F])){_HEX}{{16}}": ("guid", "ca", "switch", "router"),
                rf"(?=\d*[a-fA-F]){_HEX}{{12}}": ("mac", "ether", "hwaddr", "hw_addr", "lladdr"),
            }.items()
            for name in names
        },
        "a GPU by its number": ("gpu-", rf"(?i:GPU)-(?P<value>{_HEX}{{8}}[\da-fA-F/-]*)"),
        "a part of a GPU by its number": ("mig-", rf"(?i:MIG)-(?P<value>{_HEX}{{8}}[\da-fA-F/-]*)"),
        "a variable whose value stands before its name": (
            "value",
            rf"value{_QUOTE}\s*:\s*(?P<quote>{_QUOTE})(?P<value>{_QUOTED}|))(?P=quote)\s*,\s*"
            rf"{_QUOTE}(?:name|key){_QUOTE}\s*:\s*{_QUOTE}[\w-]*(?:(?i:{_WORDS})|{_SHORT})",
        ),
    }
    | {
        f"a password for {program}": (
            program,
            rf"{program}[\w-]*{_ON}{option}(?:{_APART})?{_VALUE}",
        )
        for program, option in {
            "mysql": "-p",
            "mariadb": "-p",
            "mongo": "-p",
            "sshpass": "-p",
            "redis-cli": "-a",
            "ldap": "-w",
        }.items()
    }
    | {
        f"a password for {program}": (
            program,
            rf"{program}\b{_ON}login\b{_ON}-p(?:{_APART})?{_VALUE}",
        )
        for program in ("docker", "podman", "helm", "oras", "apptainer", "singularity")
    }
)
"""Other secrets: description -> their beginning, in lower case, and the whole pattern."""

_NO_SECRET = re.compile(
    r"true|false|null|none|yes|no|on|off|\d{1,5}|[+-]?\d*\.\d*(?:[eE][+-]?\d+)?", re.IGNORECASE
)


def secrets_in(text: str) -> list[Span]:
    """Start and end of each secret and each address in a text, in order, without overlaps. Apply
    `blanked` to the text first.
    """
    places = Places(text)
    spans = [found.span() for pattern in _ADDRESSES for found in pattern.finditer(text)]
    spans += [
        found.span()
        for found in _LOW_ADDRESS.finditer(text)
        if _SPOKEN_OF.search(text, max(0, found.start() - 24), found.start())
    ]
    if "@" in text:
        spans += [found.span() for found in _MAIL.finditer(text)]
    for seed, pattern in _AROUND:
        spans += places.spans(seed, pattern)
    spans += _named(text, places)
    return apart(spans)


def apart(spans: Iterable[Span]) -> list[Span]:
    """The same places in order, overlapping ones joined."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


class Places:
    """Places of words in a text, in upper or lower case."""

    def __init__(self, text: str) -> None:
        folded = text.lower()
        if len(folded) != len(text):  # a few letters become two
            folded = "".join(letter.lower() if letter.isascii() else letter for letter in text)
        self._text, self._folded = text, folded

    def spans(self, seed: str, pattern: re.Pattern[str]) -> list[Span]:
        """Start and end of each match of a pattern that begins with the word: of its group `value`,
        or of the whole match.
        """
        group = "value" if "value" in pattern.groupindex else 0
        return [
            found.span(group)
            for place in self.of(seed)
            if (found := pattern.match(self._text, place))
        ]

    def of(self, seed: str) -> Iterator[int]:
        """Each place of the word, which is given in lower case."""
        place = self._folded.find(seed)
        while place >= 0:
            yield place
            place = self._folded.find(seed, place + 1)


def _named(text: str, places: Places) -> Iterator[Span]:
    for place in chain.from_iterable(map(places.of, NAMED_SEEDS)):
        spans = [found.span("value") for pattern in _NAMED if (found := pattern.match(text, place))]
        if not spans:
            continue
        start, end = max(spans, key=lambda span: span[1])
        value = text[start:end]
        # `max_tokens: 128` counts tokens, and is no secret.
        is_count = value.isdecimal() and text[place : place + 5].lower() == "token"
        if not is_count and not _NO_SECRET.fullmatch(value):
            yield start, end


_ADDRESSES = [re.compile(pattern) for pattern in ADDRESSES.values()]
_NAMED = [re.compile(pattern) for pattern in NAMED.values()]
_AROUND = [(seed, re.compile(pattern)) for seed, pattern in AROUND.values()]
_AROUND += [
    (begin.lower(), re.compile(re.escape(begin) + behind)) for begin, behind in TOKENS.items()
]
