"""The picture of the method: each lesson of the core asks a narrower question, since the one before can't tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proflab.lessons import lessons

if TYPE_CHECKING:
    from tidyprof.plots import TidyFigure

ROW_INCHES = 0.5
COLUMNS = (1.0, 43.4, 68.6)
"""Where the texts of a row begin, in hundredths of the width."""

TITLE = "One case, nine questions: what a view can't tell asks for the next one"

AGAIN = "each cure uncovers the next limit: measure again, from 00"

HERE, OTHER = "#D7E8F4", "#FFFFFF"
"""Ground of the lesson that is open, and of the others."""


def method(here: str = "") -> TidyFigure:
    """The lessons of the core from the first question to the last, with the lesson `here` marked."""
    from matplotlib.patches import FancyBboxPatch

    from tidyprof.plots import style
    from tidyprof.plots.figure import new_figure, settings

    core = [lesson for lesson in lessons().values() if lesson.core]
    with settings():
        figure, (axes,) = new_figure("the plan of this course", ROW_INCHES * len(core) + 0.7, title=TITLE)
        axes.set(xlim=(0, 100), ylim=(len(core) + 0.5, -0.7))
        axes.axis("off")
        for x, heading in zip(COLUMNS, ("question", "you look with", "and can't tell"), strict=True):
            axes.text(x, -0.35, heading, weight="bold", va="center")
        for row, lesson in enumerate(core):
            look = {"boxstyle": "round,pad=0,rounding_size=0.12", "mutation_aspect": 0.1, "ec": style.BLUE}
            ground = HERE if lesson.number == here else OTHER
            axes.add_patch(FancyBboxPatch((0.5, row), 99, 0.66, fc=ground, lw=2 if ground == HERE else 1, **look))
            for x, text in zip(
                COLUMNS, (f"{lesson.number}  {lesson.question}", lesson.view, lesson.blind), strict=True
            ):
                axes.text(x, row + 0.33, text, va="center", color=style.text_on(ground))
            arrow = {"arrowstyle": "->", "color": style.BLUE, "lw": 1.5}
            axes.annotate("", (COLUMNS[0] + 2, row + 1.02), (COLUMNS[2] + 2, row + 0.66), arrowprops=arrow)
        axes.text(COLUMNS[0] + 3, len(core) + 0.2, AGAIN, va="center")
    figure.alternative_text = (
        f"A list of {len(core)} questions, from {core[0].question!r} to {core[-1].question!r}; each comes from what "
        f"the view above it can't tell. {f'Marked is lesson {here}.' if here else 'No lesson is marked.'}"
    )
    return figure


def place(here: str) -> str:
    """One line: where a lesson of the core stands, and what the lesson before it could not tell."""
    core = [lesson for lesson in lessons().values() if lesson.core]
    way = " > ".join(f"**{one.number} {one.view}**" if one.number == here else one.number for one in core)
    asked = [one.blind for one in core if one.number < here]
    return f"The way of the case: {way}." + (f" The view before can't tell {asked[-1]}." if asked else "")
