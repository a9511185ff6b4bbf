"""Write a diagnosis as one HTML file with the report, a bar for each part, and figures.

The file is self-contained and loads nothing from the network.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from tidyprof import plots
from tidyprof.analyses.budget import steady_steps, step_budget
from tidyprof.analyses.common import join
from tidyprof.escaping import html_text, typeset
from tidyprof.package_data import text_of
from tidyprof.plots import viewer
from tidyprof.plots.figure import TidyFigure, describe, save
from tidyprof.tables.contract import Profile
from tidyprof.triage.printers import cells, evidence, headline, remarks, summary
from tidyprof.triage.recording import judged_ones, kind_of, ranks_apart
from tidyprof.triage.verdict import Diagnosis

MAX_FILES = 5


def page(found: Diagnosis, profiles: Sequence[Profile], mark: str | None = None) -> str:
    """Return the HTML page. Raises ValueError as `step_budget` does.

    This module escapes every string that comes from a file. Matplotlib escapes the strings in
    figures.
    """
    title = _text(headline(found))
    judged = judged_ones([kind_of(profile) for profile in profiles])
    ranks = [
        profile
        for i in sorted(judged)
        for profile, _ in (ranks_apart(profiles[i]) if found.step_ns else ())
    ]
    drawn = list(_figures(found, ranks, mark)) if ranks else []
    figures = "\n".join(_figure(*one, number) for number, one in enumerate(drawn))
    if any(figure.closer for _, figure in drawn):
        figures += f"\n{viewer.script()}"
    files = [
        ("" if i else "File", _file(profile)) for i, profile in enumerate(profiles[:MAX_FILES])
    ]
    lines = "\n".join(evidence(found)).strip()
    style = text_of("triage/page.css")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n{_list(summary(found)[1:])}\n{_bars(found)}\n"
        f"{_list([*remarks(found), *files])}\n{figures}\n"
        f"<details><summary>Evidence</summary><pre>{_text(lines)}</pre></details>\n"
        "</main>\n</body>\n</html>\n"
    )


def _list(lines: Sequence[tuple[str, str]]) -> str:
    rows = (
        (f"<dt>{_text(label)}</dt>" if label else "") + f"<dd>{_text(text)}</dd>"
        for label, text in lines
    )
    return "<dl>\n" + "\n".join(rows) + "\n</dl>"


def _bars(found: Diagnosis) -> str:
    """Return the HTML table of parts, with a bar for each share."""
    if not found.parts:
        return ""
    rows = []
    for part in found.parts:
        name, ms, share = cells(part)
        kind = ' class="cause"' if part.is_cause else ""
        bar = f'<td class="bar"><i style="width: {100 * part.share:.1f}%"></i></td>'
        rows.append(f"<tr{kind}><th>{_text(name)}</th><td>{ms} ms</td><td>{share}%</td>{bar}</tr>")
    step = f"Step: {found.step_ns / 1e6:,.4g} ms, {found.step_note}."
    return f"<table>\n<caption>{_text(step)}</caption>\n" + "\n".join(rows) + "\n</table>"


def _file(profile: Profile) -> str:
    """Return a description of the files, because readers may have only the page."""
    files = [Path(name).name for name in profile.meta.get("files", [])]
    tool = [str(profile.meta[key]) for key in ("tool", "tool_version") if key in profile.meta]
    return ", ".join([*files[:1], *tool])


def _text(words: str) -> str:
    """Escape text for HTML, and keep each number and its unit on one line."""
    return typeset(html_text(words))


def _figures(
    found: Diagnosis, ranks: Sequence[Profile], mark: str | None
) -> Iterator[tuple[str, TidyFigure]]:
    """Yield titles and figures. The figures show the timeline of the longest judged step, and the
    ranks.
    """
    budget = join([step_budget(own, mark=mark) for own in ranks])
    worst = steady_steps(budget)["duration_ns"].idxmax()
    # Read columns one at a time. A row with mixed types would become floats, which are too
    # imprecise for times since 1970.
    rank, begin, length = (
        budget.loc[worst, column] for column in ("rank", "start_ns", "duration_ns")
    )
    owner = next(one for one in ranks if pd.isna(rank) or (one.events["rank"] == rank).any())
    rank = None if pd.isna(rank) else int(rank)
    title = "The longest judged step in the trace" + ("" if rank is None else f", of rank {rank}")
    yield title, plots.timeline(owner, start_ns=int(begin), end_ns=int(begin + length), rank=rank)
    if found.rank_table is not None:
        yield "What each rank did, and who waited", plots.ranks(found.rank_table)


def _figure(title: str, figure: TidyFigure, number: int) -> str:
    """Return a figure as HTML, with its title and its text alternative as a visible caption."""
    # Thousands of vector boxes would take megabytes. The viewer still shows each box.
    for axes in figure.axes:
        for collection in axes.collections:
            collection.set_rasterized(True)
    image = io.BytesIO()
    save(figure, image, "svg")
    svg = image.getvalue().decode("utf-8")
    name, caption = f"figure-{number}", _text(describe(figure))
    reached = f'role="group" aria-labelledby="{name}" tabindex="0"'  # it may scroll
    return (
        f'<figure>\n<h2 id="{name}">{_text(title)}</h2>\n'
        f'<div class="picture" {reached}>{svg[svg.index("<svg") :]}</div>\n'
        f"{viewer.panel(figure.closer)}<figcaption>{caption}</figcaption>\n</figure>"
    )
