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
and how to write
commands that work on all releases. The doctor shows your ROCm release:

```text
$ .venv/bin/python -m proflab doctor
check               status      found
ROCm                ok          7.2.4
```

For example, [rocprofv3](#rocprofv3) on ROCm 7.2 writes nothing for `--stats` by default, \
but `--stats --output-format csv` works on every release.

If a tool isn't installed, the course's replay tool imitates your ROCm release or, without ROCm, \
{newest().rocm}. To choose another release, set `PROFLAB_ROCM`.
"""

VERSIONS = """\
## Versions

A release is *unconfirmed* until we see its release notes.
"""

TORCH = """\
## torch for a release

`make setup TORCH=rocm7.2` installs PyTorch for ROCm 7.2 and its patch releases. The setup rejects \
releases that aren't in the table. It also rejects `rocm6.2`, because the course needs PyTorch 2.6 \
or newer (2.7.1 on Python 3.13). The table shows the newest PyTorch version in November 2026. The list shows \
the indexes that uv doesn't know. For ROCm 10.0 and 10.1, also [specify your GPU \
architecture](setup.md#set-up-on-a-cluster).
"""

PROFILERS = """\
AMD's PyTorch wheels for ROCm 10.0 and 10.1 don't include `rocprof-sys` and `rocprof-compute`, so \
[install AMD's profilers](setup.md#install-amds-profilers).
"""

CHANGES = f"""\
## How to read the tables

7.0+ means ROCm 7.0 and newer. *All* means {shown()[0]} and newer, and perhaps older releases. The \
text after a bold number describes the behavior of that release and newer releases. The commands \
after *Portable* work on all releases. `src/proflab/releases.toml` lists the sources.
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
        rows.append((name, one.date, *(one.versions[tool] or "–" for tool in tools)))
    return _table(("ROCm", "month", *tools), rows)


def _torch_builds() -> str:
    """Return a table with one column per release, and a list of the indexes that uv doesn't know."""
    builds = torch_builds()
    newest_torch = ("torch", *(build.torch.split("+")[0] for build in builds))
    table = _table(("ROCm", *(build.rocm for build in builds)), [newest_torch])
    known = dict.fromkeys(build.index for build in builds if not build.uv)
    indexes = [
        f"- ROCm {', '.join(build.rocm for build in builds if build.index == index)}: <{index}>\n"
        for index in known
    ]
    return f"{table}\n{''.join(indexes)}"


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
    parts += [f"Prints ``{change.message}``"] if change.message and not change.default else []
    parts += [f"*Portable:* {named(change.always)}"] if change.always else []
    return ". ".join(part.removesuffix(".") for part in parts).replace("|", "\\|")


def _what(option: str) -> str:
    """Return an option, a list of options, or words.

    Anything that a user types, and each name of a file or variable, is code.
    """
    parts = option.split(", ")
    if all(part.startswith("-") or " " not in part for part in parts):
        typed = [_TYPED.fullmatch(part).groups("") for part in parts]
        if len({words for _, words in typed}) == 1:  # words that apply to all options come once
            return ", ".join(f"`{name}`" for name, _ in typed) + named(typed[0][1])
        return ", ".join(f"`{name}`{named(words)}" for name, words in typed)
    return named(option)


def named(text: str) -> str:
    """Return text with its options, and its words with an asterisk or underscore, marked as code."""
    return _NAME.sub(lambda found: found[0] if found["code"] else f"`{found[0]}`", text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first, *others = ("| " + " | ".join(line) + " |" for line in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others]) + "\n"


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page(), "python -m tools.release_page", sys.argv[1:]))
