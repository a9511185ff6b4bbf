"""The page docs/releases.md, from the table of releases: `python -m tools.release_page
[--check]`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from proflab.releases import (
    Change,
    Release,
    changes,
    number,
    releases,
    shown,
    sources,
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
"""Code; or, outside of code, an option, or a word that Markdown might take for marks, since it has
an asterisk or an underscore.
"""

_TYPED = re.compile(r"(.*?)( (?:of|that|without) .*)?")
"""An option, and words on when it applies."""

HEAD = f"""\
# Which ROCm has what

What changed for the tools of this course from ROCm {shown()[0]} to {shown()[-1]}, \
and what to write so that it works on
all of them. The course's own commands keep to what stands after *on all*. \
Where a tool is missing, the player
of tapes follows the ROCm that is there, else the newest production release, \
or the one that `PROFLAB_ROCM` names.

*All* goes back to {shown()[0]} and maybe further; \
*up to 7.2* is gone in the next release. Letters at the end of a row
name its [source](#sources).

7.9 to 7.13 were previews of how ROCm is built since 7.14; \
there is no 7.15, 8 or 9. A release that is called *not
confirmed* is in use, but its release notes were not seen when this was written: \
it may still change. The table behind
it is `src/proflab/releases.toml`; add what is missing there.
"""


TORCH = """\
## torch for a release

`make setup TORCH=rocm7.2` takes torch from here, \
and refuses a release that is not in this table. Where kernels come in
a package for each architecture, name yours: \
`make setup TORCH=rocm10.1 GFX=gfx942`. Without a name, and without a GPU
to ask, set-up takes those for all GPUs: 10 GB to download in place of 2. \
Without any, torch sees the GPU, and the first
kernel ends with `hipErrorInvalidImage`.
"""


def page() -> str:
    """The whole page."""
    tools = dict.fromkeys(change.tool for change in changes())
    parts = [HEAD, "## Versions\n", _versions(releases()), TORCH, _torch_builds()]
    for tool in tools:
        parts += [f"## {tool}\n", _changes([change for change in changes() if change.tool == tool])]
    return (
        "\n".join(
            [*parts, "## Sources\n", *(f"- {name}: {text}" for name, text in sources().items())]
        )
        + "\n"
    )


def _versions(known: Sequence[Release]) -> str:
    tools = list(known[0].versions)
    rows = []
    for one in known:
        name = one.rocm + " (preview)" * one.preview + " (not confirmed)" * (not one.confirmed)
        rows.append((name, one.date, *(one.versions[tool] or "not stated" for tool in tools)))
    return _table(("ROCm", "month", *tools), rows)


def _torch_builds() -> str:
    of_uv = [build for build in torch_builds() if build.uv]
    span = f"{of_uv[0].rocm} to {of_uv[-1].rocm}"
    rows = [
        (
            span,
            "uv's `--torch-backend`",
            "the newest",
            "one package for all",
            of_uv[0].source,
            of_uv[0].looked_up,
        )
    ]
    for build in torch_builds()[len(of_uv) :]:
        gpus = "a package for each" if build.per_gpu else "one package for all"
        rows.append(
            (build.rocm, f"<{build.index}>", build.torch, gpus, build.source, build.looked_up)
        )
    return _table(("ROCm", "index", "torch", "GPUs", "source", "looked up"), rows)


def _changes(found: Iterable[Change]) -> str:
    rows = [
        (_what(change.option), _remarks(change), span(change), change.source) for change in found
    ]
    return _table(("what", "what to know", "releases", "source"), rows)


def span(change: Change) -> str:
    """The releases that have it, and those in which its default changed."""
    if change.until:
        last = [one.rocm for one in releases() if number(one.rocm) < number(change.until)][-1]
        which = f"{change.since} to {last}" if change.since else f"up to {last}"
    else:
        which = f"from {change.since} on" if change.since else "all"
    later = [rocm for rocm in list(change.default)[1:] if change.is_in(rocm)]
    return f"{which}; changed in {', '.join(later)}" if later else which


def _remarks(change: Change) -> str:
    parts = [named(change.note)] if change.note else []
    defaults = "; ".join(f"from {rocm} on: {named(text)}" for rocm, text in change.default.items())
    parts += [defaults[0].upper() + defaults[1:]] if defaults else []
    parts += [f"It says: ``{change.message}``"] if change.message else []
    parts += [f"**On all:** {named(change.always)}"] if change.always else []
    return ". ".join(parts).replace("|", "\\|")


def _what(option: str) -> str:
    """An option, a list of options, or words: text to type, and names of files and variables, as
    code.
    """
    parts = option.split(", ")
    if all(part.startswith("-") or " " not in part for part in parts):
        return ", ".join(_code(part) for part in parts)
    return named(option)


def _code(option: str) -> str:
    """An option as code, without the words on when it applies."""
    typed, words = _TYPED.fullmatch(option).groups("")
    return f"`{typed}`{named(words)}"


def named(text: str) -> str:
    """A text in which options, and words with an asterisk or an underscore, are code."""
    return _NAME.sub(lambda found: found[0] if found["code"] else f"`{found[0]}`", text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page(), "python -m tools.release_page", sys.argv[1:]))
