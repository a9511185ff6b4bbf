"""Write docs/releases.md from the table of releases: `python -m tools.release_page [--check]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from proflab.releases import (
    Change,
    Release,
    changes,
    newest,
    number,
    releases,
    shown,
    torch_builds,
)
from tools.generated_page import write_or_check

PAGE = Path("docs/releases.md")

_NAME = re.compile(
    r"""(?P<code>`+).*?(?P=code)
    | (?<![\w.*/-]) (?: --?[a-z][\w=-]* | [\w.*/-]*[_*][\w.*/-]*? )"""
    r""" (?= \.? (?: [^\w.*/-] | $ ) )""",
    re.VERBOSE,
)
"""Code, or outside code an option or a word with an asterisk or underscore, which Markdown could
interpret as markup.
"""

_TYPED = re.compile(r"(.*?)( (?:of|that|with|without) .*)?")
"""An option, and the words on when it applies."""

HEAD = f"""\
# Which ROCm release supports which option

This page lists what changed in the course's tools between ROCm {shown()[0]} and {shown()[-1]}, \
and what to write so that a
command works on all of these releases. The doctor shows your release:

```
$ .venv/bin/python -m proflab doctor
check               status      found
ROCm                ok          7.2.4
```

For example, the section [rocprofv3](#rocprofv3) shows that on ROCm 7.2 `--stats` writes nothing by default. \
Therefore,
write `--stats --output-format csv`, which works on every release. \
The course's own commands follow this rule.

If a tool isn't installed, the course's replay tool imitates the ROCm release on your machine. \
Without ROCm, it imitates
{newest().rocm}, the newest confirmed release. \
To choose another release, set `PROFLAB_ROCM`.
"""

VERSIONS = """\
## Versions

An unconfirmed release is in use, but we haven't seen its release notes. \
Releases 7.9 to 7.13 were previews, and 7.15, 8 and
9 don't exist.
"""

TORCH = """\
## torch for a release

`make setup TORCH=rocm7.2` installs torch for ROCm 7.2. \
A patch release such as `rocm7.2.4` uses the index of its release.
PyTorch's index for a ROCm release doesn't receive new torch versions \
after PyTorch moves to a newer ROCm. The course needs
torch 2.6 or newer (2.7.1 on Python 3.13), so the setup refuses `rocm6.2`. \
It also refuses releases without a row.

For ROCm 10.0 and 10.1, the kernels come in one package per GPU architecture. \
Name yours, for example
`make setup TORCH=rocm10.1 GFX=gfx942`. If you don't name one and the machine has no GPU, \
the setup downloads the kernels
for all architectures, which takes 10 GB instead of 2 GB. \
Without any kernel package, torch detects the GPU, but the first
kernel fails with `hipErrorInvalidImage`.
"""

PROFILERS = """\
AMD's torch wheels for ROCm 10.0 and 10.1 don't install `rocprof-sys` and `rocprof-compute`. \
Install them with the ROCm
version of your torch. Otherwise, pip may replace the ROCm packages that torch uses:

```
pip install --index-url https://stable.repo.amd.com/rocm/whl-next/ "rocm[profiler]==10.1.0"
```
"""

CHANGES = f"""\
## How to read the tables

In the column *ROCm*, 7.0+ means 7.0 and newer. *All* means {shown()[0]} and newer, \
and perhaps also older releases. A bold
number introduces the behavior of that release and newer ones. \
The text after *Portable* works on all
releases. `src/proflab/releases.toml` contains the source of each row.
"""


def page() -> str:
    """Return the whole page."""
    tools: dict[str, list[Change]] = {}
    for change in changes():
        tools.setdefault(change.tool, []).append(change)
    parts = [HEAD, VERSIONS, _versions(releases()), TORCH, _torch_builds(), PROFILERS, CHANGES]
    single = [found for (found, *others) in tools.values() if not others]
    for tool, found in tools.items():
        if len(found) > 1:
            parts += [f"## {tool}\n", _changes(found)]
    return "\n".join([*parts, "## Other tools\n", _changes(single, with_tool=True)])


def _versions(known: Sequence[Release]) -> str:
    tools = list(known[0].versions)
    rows = []
    for one in known:
        name = one.rocm + " (preview)" * one.preview + " (unconfirmed)" * (not one.confirmed)
        rows.append((name, one.date, *(one.versions[tool] or "not stated" for tool in tools)))
    return _table(("ROCm", "month", *tools), rows)


def _torch_builds() -> str:
    rows = []
    for build in torch_builds():
        index = "known to uv" if build.uv else f"<{build.index}>"
        rows.append((build.rocm, build.torch, index))
    return _table(("ROCm", "newest torch, November 2026", "index"), rows)


def _changes(found: Sequence[Change], with_tool: bool = False) -> str:
    """Return a table with one row per change; changes without a remark share a row per release."""
    rows: list[Sequence[str]] = []
    bare: dict[str, list[str]] = {}
    for change in found:
        what = _what(change.option)
        if with_tool and change.tool not in change.option:
            what = f"{change.tool}: {what}"
        if with_tool or _remarks(change):
            rows.append((what, span(change), _remarks(change)))
        else:
            bare.setdefault(span(change), []).append(what)
    rows += [(", ".join(options), shown_span, "") for shown_span, options in bare.items()]
    return _table(("what", "ROCm", "what to know"), rows)


def span(change: Change) -> str:
    """Return the releases that have an option, for example 7.0+ or "up to 7.2"."""
    since = change.since or next(iter(change.default), "")
    since = "" if since == shown()[0] else since
    if change.until:
        last = [one.rocm for one in releases() if number(one.rocm) < number(change.until)][-1]
        return f"{since} to {last}" if since else f"up to {last}"
    return f"{since}+" if since else "all"


def _remarks(change: Change) -> str:
    parts = [f"**{rocm}:** {named(text)}" for rocm, text in change.default.items()]
    parts += [named(change.note)] if change.note else []
    parts += [f"Prints ``{change.message}``"] if change.message else []
    parts += [f"*Portable:* {named(change.always)}"] if change.always else []
    return ". ".join(part.removesuffix(".") for part in parts).replace("|", "\\|")


def _what(option: str) -> str:
    """Return an option, a list of options, or words.

    Anything that a user types, and each name of a file or variable, is code.
    """
    parts = option.split(", ")
    if all(part.startswith("-") or " " not in part for part in parts):
        return ", ".join(_code(part) for part in parts)
    return named(option)


def _code(option: str) -> str:
    """Return an option as code, followed by the words on when it applies."""
    typed, words = _TYPED.fullmatch(option).groups("")
    return f"`{typed}`{named(words)}"


def named(text: str) -> str:
    """Return text with its options, and its words with an asterisk or underscore, marked as code."""
    return _NAME.sub(lambda found: found[0] if found["code"] else f"`{found[0]}`", text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first, *others = ("| " + " | ".join(line) + " |" for line in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others]) + "\n"


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page(), "python -m tools.release_page", sys.argv[1:]))
