"""A notebook button that opens a trace in Perfetto, with a timeline by tidyprof below it.

The cell's output contains the trace, and the browser passes it to Perfetto's page
(https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui). The button doesn't need a
second port, a request to the Jupyter server, or an upload. The button also works through
JupyterHub and SSH tunnels.
"""

from __future__ import annotations

import base64
import html
import json
import os
import secrets
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from typing import TYPE_CHECKING

from proflab.display import Notice, show, size
from proflab.errors import CourseError
from proflab.perfetto_trace import LIMIT_BYTES, Trace, prepare
from tidyprof.escaping import printable

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

VIEWER = "https://ui.perfetto.dev"
"""Address of Perfetto's page.

PROFLAB_PERFETTO_URL can name a different address, such as a copy inside a closed network.
"""

PATIENCE_S = 20.0
"""Seconds until the button reports that the viewer hasn't answered. The limit allows for slow
networks.
"""

_ROW = "padding:0.2em 0.9em 0.5em;max-width:60em"
_BUTTON = (  # the browser's default colors gray out disabled buttons
    "padding:0.3em 0.8em;margin-right:0.5em"
)
_BELOW = "The timeline below shows the same trace as the button. "
_SAVE = "You can also save the file and open it with Perfetto in another browser."
_NO_SCRIPT = "If the buttons stay gray, trust this notebook and run the cell again."


@dataclass(frozen=True, repr=False)
class PerfettoButton:
    """Button that a notebook shows as HTML with a script, and a terminal as one sentence.

    - page: address of the viewer.
    - patience_s: seconds until the button reports that the viewer hasn't answered.
    - has_timeline: True if a timeline by tidyprof is shown below the button.

    Names come from files and may contain any text. Therefore, all text is escaped and never
    becomes part of the script.
    """

    trace: Trace
    page: str
    title: str
    patience_s: float = PATIENCE_S
    has_timeline: bool = True

    def __str__(self) -> str:
        return (
            f"[button in a notebook] Open {printable(self.title)} ({self._what()}) in {self.page}"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        # Each output needs a unique id because the same button may appear several times.
        identity = f"proflab-perfetto-{secrets.token_hex(8)}"
        config = {
            "page": self.page,
            "title": printable(self.title),
            "fileName": printable(self.trace.name),
            "patienceSeconds": self.patience_s,
            "elsewhere": f"{_BELOW if self.has_timeline else ''}{_SAVE}",
        }
        script = (
            resources.files("proflab")
            .joinpath("assets/perfetto/button.js")
            .read_text(encoding="utf-8")
        )
        return (
            f'<div id="{identity}" data-config="{html.escape(json.dumps(config))}" '
            f'data-trace="{base64.b64encode(self.trace.content).decode("ascii")}">'
            f"{self._notice()._repr_html_()}"
            f'<div style="{_ROW}">{_button("open", "Open in Perfetto")}'
            f"{_button('save', 'Save the trace')}"
            f'<span role="status">{_NO_SCRIPT}</span></div></div>'
            f'<script>{script.rstrip()}("{identity}");</script>'
        )

    def _what(self) -> str:
        made_by = f", {self.trace.made_by}" if self.trace.made_by else ""
        return f"{size(len(self.trace.content))}{made_by}"

    def _notice(self) -> Notice:
        text = (
            f"{self._what()}. The button opens {self.page} in a new tab. The trace stays in your"
            " browser and isn't uploaded."
        )
        return Notice(printable(self.title), text)


def perfetto(
    trace_or_profile: str | PathLike[str] | Profile,
    title: str | None = None,
    *,
    step: int | None = None,
) -> None:
    """Show a button that opens a trace in Perfetto, with a timeline from `tidyprof.plots` below it.

    - trace_or_profile: any input or result of `tidyprof.read`. Files from torch.profiler and
      Perfetto are passed unchanged. Other inputs are converted to a Chrome trace.
    - title: name that Perfetto shows for the trace.
    - step: number of the step to show, or None for all steps. A step lasts from the start to the
      end of its host range.

    The timeline has a text alternative. If a trace is larger than LIMIT_BYTES, the notebook
    doesn't contain the trace, and the output suggests other ways to open it. Raises CourseError
    for an unknown step, and for a trace that is empty or can't be read.
    """
    from tidyprof.errors import ProfileReadError

    page = viewer_page()
    try:
        trace, profile = prepare(trace_or_profile, step)
    except ProfileReadError as error:
        raise CourseError(str(error)) from None
    name = title or trace.name
    if trace.content is None:
        show(_too_large(trace, profile, page))
    else:
        show(PerfettoButton(trace, page, name, has_timeline=len(profile.events) > 0))
    _show_timeline(profile, name, step)


def viewer_page() -> str:
    """Return the address of the viewer page."""
    return f"{os.environ.get('PROFLAB_PERFETTO_URL', VIEWER).rstrip('/')}/"


def _too_large(trace: Trace, profile: Profile, page: str) -> Notice:
    """Return instructions for opening a trace that is too large for a notebook."""
    from tidyprof import steps

    text = (
        f"{printable(trace.name)} exceeds {size(LIMIT_BYTES)} even when compressed, which is too"
        f" large for a notebook. Open {page} and drop the file on the page. To write a profile to"
        " a file, call `tidyprof.write_chrome_trace`. If the page is too slow, first start"
        " `trace_processor server http FILE`"
        " (https://perfetto.dev/docs/visualization/large-traces)."
    )
    found = steps(profile)["step"].tolist()
    if len(found) < 2:
        return Notice("Too large for a button", text, tone="open")
    # Suggest a step from the middle because the first steps are warmup steps.
    cut = f"proflab.perfetto(..., step={found[len(found) // 2]})"
    return Notice("Too large for a button", f"{text} Or show one step:", tone="open", code=cut)


def _show_timeline(profile: Profile, title: str, step: int | None) -> None:
    """Show a timeline for learners who can't reach or can't use Perfetto."""
    from proflab.showing import show_figure
    from tidyprof.plots import timeline

    if len(profile.events):
        show_figure(timeline(profile, step=step, title=printable(title)))
    else:
        text = "The file contains only counter samples, which Perfetto draws as curves."
        show(Notice("No timeline here", text))


def _button(action: str, label: str) -> str:
    return (
        f'<button type="button" data-action="{action}" style="{_BUTTON}" disabled>{label}</button>'
    )
