"""The figure of the course's method: the questions of the core, from the first to the last."""

from __future__ import annotations

import textwrap

from matplotlib.patches import FancyBboxPatch

from proflab.lessons import lessons
from tidyprof.plots import TidyFigure, style
from tidyprof.plots.figure import new_figure, settings

ROW_INCHES, BOX = 0.58, 0.76
"""Height in inches of a row with its arrow, and the share of it that the box takes: two lines of
text.
"""

COLUMNS = {1.0: "question", 43.4: "you look with", 70.0: "and can't tell"}
"""Where the texts of a row begin, in hundredths of the width, and their headings."""

CHARACTERS = (46, 29, 31)
"""Characters of a line of each column."""

TITLE = "One case, nine questions: what a view can't tell asks for the next one"
AGAIN = "each cure uncovers the next limit: measure again, from 00"


def method(here: str = "") -> TidyFigure:
    """Draw the lessons of the core, with the lesson `here` marked."""
    core = [lesson for lesson in lessons().values() if lesson.core]
    box = {"boxstyle": "round,pad=0,rounding_size=0.12", "mutation_aspect": 0.1, "ec": style.BLUE}
    arrow = {"arrowstyle": "->", "color": style.BLUE, "lw": 1.5}
    with settings():
        height = ROW_INCHES * len(core) + 0.7
        figure, (axes,) = new_figure("the plan of this course", height, title=TITLE)
        axes.set(xlim=(0, 100), ylim=(len(core) + 0.6, -0.7))
        axes.axis("off")
        for x, heading in COLUMNS.items():
            axes.text(x, -0.35, heading, weight="bold", va="center")
        for row, lesson in enumerate(core):
            ground, line = ("#D7E8F4", 2) if lesson.number == here else ("#FFFFFF", 1)
            axes.add_patch(FancyBboxPatch((0.5, row), 99, BOX, fc=ground, lw=line, **box))
            texts = (f"{lesson.number}  {lesson.question}", lesson.view, lesson.blind)
            for x, text, wide in zip(COLUMNS, texts, CHARACTERS, strict=True):
                # Lines of the first column continue below the question, not below its number.
                lines = textwrap.fill(text, wide, subsequent_indent="      " * (x == 1.0))
                axes.text(x, row + BOX / 2, lines, va="center", color=style.text_on(ground))
            axes.annotate("", (3.0, row + 1), (3.0, row + BOX), arrowprops=arrow)
        axes.text(1.0, len(core) + 0.3, AGAIN, va="center")
    figure.alternative_text = (
        f"A list of {len(core)} questions, from {core[0].question!r} to {core[-1].question!r}; each"
        " comes from what the view above it can't tell."
        f" {f'Marked is lesson {here}.' if here else 'No lesson is marked.'}"
    )
    return figure
