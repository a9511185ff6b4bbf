"""A diagnosis as one HTML file: text and figures, no script, nothing from elsewhere."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from tidyprof import plots
from tidyprof.analyses.common import join
from tidyprof.analyses.kernels import kernels
from tidyprof.diagnosis.reports import facts, headline
from tidyprof.diagnosis.signs import judged_part, kind_of, ranks_apart
from tidyprof.diagnosis.verdict import Diagnosis, judged_ones
from tidyprof.errors import printable
from tidyprof.plots.figure import TidyFigure, describe, save
from tidyprof.tables.contract import Profile

STYLE = """
:root { color-scheme: light dark; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 sans-serif; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.5rem; }
dt { font-weight: bold; }
dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 2rem 0; background: #fff; color: #1a1a1a; break-inside: avoid; }
figure svg { width: 100%; height: auto; }
figcaption { padding: .5rem 1rem; }
"""
"""Text takes the reader's colours, light or dark; figures keep their white ground, on which they were checked."""


def page(diagnosis: Diagnosis, profiles: Sequence[Profile], mark: str | None = None) -> str:
    """The whole page. Raises ValueError as `step_budget` does.

    Every text from a file is escaped here; matplotlib escapes those in figures.
    """
    title = html.escape(printable(headline(diagnosis)))
    rows = "\n".join(
        f"<dt>{html.escape(label)}</dt><dd>{html.escape(printable(text))}</dd>" for label, text in facts(diagnosis)
    )
    judged = judged_ones([kind_of(profile) for profile in profiles])
    timelines = [judged_part(own, mark) for i in sorted(judged) for own in ranks_apart(profiles[i])]
    figures = "\n".join(map(_figure, _figures(diagnosis, timelines))) if diagnosis.signs.step_ns else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n{rows}\n</dl>\n{figures}\n</body>\n</html>\n"
    )


def _figures(diagnosis: Diagnosis, judged: Sequence[tuple[Profile, pd.DataFrame]]) -> Iterator[TidyFigure]:
    """The budget of the steps, the worst step's timeline, the kernels, the ranks."""
    timelines, budgets = zip(*judged, strict=True)
    budget = join(budgets)
    yield plots.step_budget(budget)
    worst = budget["duration_ns"].idxmax()
    # Column by column: a row of several types becomes floats, too coarse for times since 1970.
    rank, begin, length = (budget.loc[worst, column] for column in ("rank", "start_ns", "duration_ns"))
    owner = next(one for one in timelines if pd.isna(rank) or (one.events["rank"] == rank).any())
    rank = None if pd.isna(rank) else int(rank)
    title = "The longest step" + ("" if rank is None else f", of rank {rank}")
    yield plots.timeline(owner, start_ns=int(begin), end_ns=int(begin + length), rank=rank, title=title)
    table = kernels(replace(timelines[0], events=pd.concat([profile.events for profile in timelines])))
    if len(table):
        yield plots.top_kernels(table)
    if diagnosis.signs.rank_table is not None:
        yield plots.ranks(diagnosis.signs.rank_table)


def _figure(figure: TidyFigure) -> str:
    """A figure as SVG in the page, with its text alternative as a caption that everybody can read."""
    image = io.BytesIO()
    save(figure, image, "svg")
    svg = image.getvalue().decode("utf-8")
    text = html.escape(printable(describe(figure)))
    return f"<figure>\n{svg[svg.index('<svg') :]}\n<figcaption>{text}</figcaption>\n</figure>"
