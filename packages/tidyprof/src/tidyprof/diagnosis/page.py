"""A diagnosis as one HTML file: text, figures, and the viewer that opens from them. It loads
nothing from elsewhere.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof import plots
from tidyprof.analyses.budget import steady_steps, step_budget
from tidyprof.analyses.common import has_launches, join, start_and_end
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.operators import operators
from tidyprof.analyses.steps import steps
from tidyprof.diagnosis import on_device as on_device_parts
from tidyprof.diagnosis import on_host as on_host_parts
from tidyprof.diagnosis.on_device import timeline
from tidyprof.diagnosis.on_host import host_timeline, ran_on_host
from tidyprof.diagnosis.profiler_overhead import NEARLY
from tidyprof.diagnosis.recordings import kind_of, ranks_apart
from tidyprof.diagnosis.verdict import BRACKETS, Diagnosis, facts, headline, judged_ones
from tidyprof.escaping import html_text, typeset
from tidyprof.plots import viewer
from tidyprof.plots.figure import TidyFigure, describe, in_the_dark, save
from tidyprof.tables.contract import Profile

MOST_FILES = 5
"""The page names at most so many recordings."""

STYLE = """
:root { color-scheme: light dark; }
body { max-width: 51rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.3; text-wrap: balance; }
h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.5rem; }
dt { grid-column: 1; font-weight: bold; }
dd { grid-column: 2; margin: 0; overflow-wrap: anywhere; }
figure { margin: 2.5rem 0; break-inside: avoid; }
figure > .light, figure > .dark { overflow-x: auto; }
figure svg { display: block; min-width: 40rem; max-width: 100%; height: auto; }
figcaption { padding-top: .5rem; }
.dark { display: none; }
@media (max-width: 40rem) {
  dl { display: block; }
  dt { margin-top: .75rem; }
  dd + dd { margin-top: .5rem; }
}
@media screen and (max-width: 42rem) {
  figure > .light::before, figure > .dark::before {
    content: "scroll for the rest of the picture \\2192";
    position: sticky; left: 0; font-size: .8rem; opacity: .75;
  }
}
@media print { figure svg { min-width: 0; } }
@media screen and (prefers-color-scheme: dark) {
  .light { display: none; }
  .dark { display: block; }
}
"""
"""Text and figures take the reader's colours, light or dark; paper is white. Figures are never
larger than they were drawn, which is as wide as the text. Where they would become too small to read
they scroll, and say so.
"""


def page(diagnosis: Diagnosis, profiles: Sequence[Profile], mark: str | None = None) -> str:
    """The whole page. Raises ValueError as `step_budget` does.

    Every text from a file is escaped here; matplotlib escapes those in figures.
    """
    title = _text(headline(diagnosis))
    recordings = [
        ("" if i else "recording", _recording(profile))
        for i, profile in enumerate(profiles[:MOST_FILES])
    ]
    # What to do comes right below the verdict.
    found = sorted([*recordings, *facts(diagnosis), BRACKETS], key=lambda row: row[0] != "next")
    rows = "\n".join(
        (f"<dt>{_text(label)}</dt>" if label else "") + f"<dd>{_text(text)}</dd>"
        for label, text in found
    )
    judged = judged_ones([kind_of(profile) for profile in profiles])
    ranks = (
        [one for i in sorted(judged) for one in ranks_apart(profiles[i])]
        if diagnosis.signs.step_ns
        else []
    )
    drawn = list(_figures(diagnosis, ranks, mark)) if ranks else []
    figures = "\n".join(_figure(*one, number) for number, one in enumerate(drawn))
    if any(figure.closer for _, figure in drawn):
        figures += f"\n{viewer.script()}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n<dl>\n{rows}\n</dl>\n{figures}\n</main>\n</body>\n</html>\n"
    )


def _recording(profile: Profile) -> str:
    """What was recorded, for somebody who has only the page."""
    files = [Path(name).name for name in profile.meta.get("files", [])]
    facts = [files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")] if files else []
    facts += [
        str(profile.meta[key]) for key in ("tool", "tool_version", "gpu") if profile.meta.get(key)
    ]
    if "record_window_ns" in profile.meta:
        facts.append(
            pd.Timestamp(profile.meta["record_window_ns"][0]).strftime("%Y-%m-%d %H:%M UTC")
        )
    return ", ".join(facts) or "not known"


def _text(words: str) -> str:
    """Words for the page; a number stays with its percent sign, by a blank that no text from a file
    may hold.
    """
    return typeset(html_text(words))


def _figures(
    diagnosis: Diagnosis, ranks: Sequence[tuple[Profile, pd.DataFrame]], mark: str | None
) -> Iterator[tuple[str, TidyFigure]]:
    """Titles and figures: the parts of the steps, the worst step's timeline, the kernels (without a
    GPU the operators), the ranks.
    """
    on_host = diagnosis.signs.on_host
    parts = pd.concat(
        [(host_timeline if on_host else timeline)(*one, mark).budget for one in ranks]
    )
    parts.attrs |= {
        "origin": ranks[0][0].origin,
        "parts": (on_host_parts if on_host else on_device_parts).PARTS,
    }
    observer = diagnosis.signs.observer
    estimated = observer.estimated_ns and (observer.estimated_ns.low, observer.estimated_ns.high)
    if estimated and estimated[0] >= NEARLY * observer.traced_ns:
        estimated = None
    bars = plots.step_budget(parts, unprofiled_step_ns=observer.unprofiled_step_ns or estimated)
    left_out = "; the first is not judged" if len(steady_steps(parts)) < len(parts) else ""
    yield f"Where each traced step went{left_out}", bars
    timelines, budgets = zip(*(judged_part(own, mark) for own, _ in ranks), strict=True)
    budget = join(budgets)
    worst = steady_steps(budget)["duration_ns"].idxmax()
    # Column by column: a row of several types becomes floats, too coarse for times since 1970.
    rank, begin, length = (
        budget.loc[worst, column] for column in ("rank", "start_ns", "duration_ns")
    )
    owner = next(one for one in timelines if pd.isna(rank) or (one.events["rank"] == rank).any())
    rank = None if pd.isna(rank) else int(rank)
    title = "The longest of the judged steps" + ("" if rank is None else f", of rank {rank}")
    yield title, plots.timeline(owner, start_ns=int(begin), end_ns=int(begin + length), rank=rank)
    together = replace(timelines[0], events=pd.concat([profile.events for profile in timelines]))
    if len(table := kernels(together)):
        yield "The kernels that take most time", plots.top_kernels(table)
    elif diagnosis.signs.on_host and len(table := operators(together)):
        yield "The operators that take most time", plots.top_operators(table)
    if diagnosis.signs.rank_table is not None:
        yield "What each rank did, and who waited", plots.ranks(diagnosis.signs.rank_table)


def judged_part(profile: Profile, mark: str | None) -> tuple[Profile, pd.DataFrame]:
    """The profile, and its table of `step_budget`: the device's steps, where launches are recorded.

    Where a GPU was at work and no steps are marked, only what lies between the first and the last
    event on a device is kept, clipped to that time.
    """
    linked = len(steps(profile, mark=mark)) and has_launches(profile.device_events)
    budget = step_budget(profile, "device" if linked else "host", mark=mark)
    if ran_on_host(profile) or budget["step"].notna().any():
        return profile, budget
    (start, end), (begin, finish) = (
        start_and_end(profile.events),
        start_and_end(profile.device_events),
    )
    first, last = begin.min(), finish.max()
    # An event without a duration at the very beginning overlaps nothing, and belongs to it.
    inside = (start < last) & (end > first) | ((start == first) & (end == first))
    clipped = {
        "start_ns": np.maximum(start, first),
        "duration_ns": np.minimum(end, last) - np.maximum(start, first),
    }
    judged = replace(profile, events=profile.events.assign(**clipped)[inside])
    return judged, step_budget(judged, mark=mark)


def _figure(title: str, figure: TidyFigure, number: int) -> str:
    """A figure as SVG in the page, light and dark, below its title, with its text alternative as a
    caption that everybody can read.
    """
    light = _svg(figure)
    with in_the_dark(figure):
        # Names of its own for the dark picture: references would else go to the light one, and a
        # browser does not draw hatches that belong to a hidden picture.
        dark = re.sub(r'(\bid="|url\(#|href="#)', r"\1dark-", _svg(figure))
    name, caption = f"figure-{number}", _text(describe(figure))
    reached = f'role="group" aria-labelledby="{name}" tabindex="0"'  # by keys, since it may scroll
    return (
        f'<figure>\n<h2 id="{name}">{_text(title)}</h2>\n'
        f'<div class="light" {reached}>{light}</div>\n<div class="dark" {reached}>{dark}</div>\n'
        f"{viewer.panel(figure.closer)}<figcaption>{caption}</figcaption>\n</figure>"
    )


def _svg(figure: TidyFigure) -> str:
    image = io.BytesIO()
    save(figure, image, "svg")
    svg = image.getvalue().decode("utf-8")
    return svg[svg.index("<svg") :]
