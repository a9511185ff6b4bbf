"""The tools of the course from the top down: the question each answers, what it sees, what it costs.

What a tool sees is from its documentation; costs are what the tools' own pages and AMD's published runs of this
workload say (github.com/amd/HPCTrainingExamples, MLExamples/PyTorch_Profiling and MLExamples/TraceLens).
Where they give no figure there is none here.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from proflab.display import Table, inline_html

SIGHTS = ("sensors", "call stacks", "operators", "kernels", "counters")
"""What there is to see, from the outside of the machine to the inside of the GPU."""

YES, OPTION, NO = "yes", "option", "no"

WORDS = {
    "sensors": "power, heat, memory, activity",
    "call stacks": "which functions the processor is in",
    "operators": "PyTorch's functions",
    "kernels": "programs that run on the GPU",
    "counters": "what the GPU's hardware counts inside a kernel",
}
"""Each of SIGHTS in other words."""

NOTE = "`no` is what a tool cannot see, `option` what it sees if you ask for it."

LOOKS = {YES: "background:#c9eadd", OPTION: "background:#fbeecb", NO: "background:#ffffff"}
"""Ground of a cell by what it says; the word is there too, so nothing depends on the colour."""

WIDTHS = {"question it answers": "min-width:13em", "cost": "min-width:19em"}
"""Columns of sentences need room, or the table grows tall."""

_CELL = "text-align:left;vertical-align:top;padding:0.3em 0.6em;color:#1a1a1a;border-bottom:1px solid #dddddd"


@dataclass(frozen=True)
class Tool:
    """One row of the map: `sees` has one of YES, OPTION, NO for each of SIGHTS; `lesson` is two digits, or ""."""

    name: str
    question: str
    sees: tuple[str, str, str, str, str]
    cost: str
    lesson: str


TOOLS = (
    Tool(
        "amd-smi, omnistat",
        "Is the GPU used at all? Do power, heat or memory limit it?",
        (YES, NO, NO, NO, NO),
        "Runs beside the program. amd-smi looks once a second at most.",
        "01",
    ),
    Tool(
        "torch.profiler",
        "Where does a step go?",
        (NO, OPTION, YES, YES, NO),
        "A few lines in the program; slower steps. AMD's three steps made a file of 14 MB.",
        "02",
    ),
    Tool(
        "rocprof-sys",
        "What does the processor do while the GPU waits?",
        (YES, YES, NO, YES, OPTION),
        "A word before the command; huge files. AMD noted 90 s for `--max-steps 10`.",
        "03",
    ),
    Tool(
        "rocprofv3",
        "Which kernels, how often, how long?",
        (NO, NO, NO, YES, OPTION),
        "A word before the command. No figure is published.",
        "04",
    ),
    Tool(
        "rocprof-compute",
        "How near is one kernel to the limit of the hardware?",
        (NO, NO, OPTION, YES, YES),
        "Runs the whole program again for each group of counters.",
        "05",
    ),
    Tool(
        "rpd",
        "Can I ask my own question?",
        (NO, OPTION, OPTION, YES, NO),
        "A word before the command. Low overhead, say its authors. You build it yourself.",
        "06",
    ),
    Tool(
        "debug agent",
        "The job died or hangs: in which kernel?",
        (NO, NO, NO, NO, NO),
        "A library loaded at the start. No profiler: it shows the GPU's state at a fault, and no times.",
        "09",
    ),
)
"""From the whole machine down to one kernel; the last one stands apart."""


@dataclass(frozen=True, repr=False)
class ToolMap(Table):
    """A table that is wider than others in a notebook, with coloured cells; plain in a terminal."""

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th scope="col" style="{_CELL};{WIDTHS.get(name, "")}">{html.escape(name)}</th>' for name in self.columns
        )
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        return (
            '<div style="background:#ffffff;color:#1a1a1a;padding:0.5em 0.9em">'
            '<table style="width:100%;table-layout:auto">'
            '<caption style="text-align:left;color:#1a1a1a;font-weight:bold">'
            f"{html.escape(self.caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<div>{inline_html(self.note)}</div></div>"
        )


def tool_map() -> ToolMap:
    """The map as a table for a notebook or a terminal."""
    columns = ("tool", "question it answers", *SIGHTS, "cost", "lesson")
    rows = [(tool.name, tool.question, *tool.sees, tool.cost, tool.lesson or "none") for tool in TOOLS]
    words = "; ".join(f"{sight}: {words}" for sight, words in WORDS.items())
    return ToolMap("The tools, from the top down", columns, rows, f"{NOTE} In other words, {words}.")


def _cell(text: str) -> str:
    ground = LOOKS.get(text, LOOKS[NO])
    return f'<td style="{_CELL};{ground}">{inline_html(text)}</td>'
