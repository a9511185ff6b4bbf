"""README's picture, light and dark, from a real recording: a device of lesson 02, and the reply to
a likely mistake.

    .venv/bin/python -m tools.readme_picture

It needs Chromium, and the recording from a mirror (PROFLAB_RECORDINGS) or the network.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from PIL import Image, ImageChops

import tidyprof
from proflab import exercise, recording
from proflab.display import inline_html
from proflab.exercises.model import exercise_cell
from tidyprof import plots
from tidyprof.plots.figure import in_the_dark

DOCS = Path(__file__).resolve().parents[1] / "docs"
RECORDING, EXERCISE = "torch-mi300x-resnet-ddp-rank0", "02.1"
WIDTH, HEIGHT = 1100, 1000
"""Size of the window in pixels; the empty part below is cut off."""
LOOKS = {
    "first_look.png": ("#ffffff", "#1a1a1a", "#f5f5f5"),
    "first_look_dark.png": ("#111111", "#eeeeee", "#262626"),
}
"""File -> colours of the page, its text, and the box of code."""

PAGE = """<!doctype html><meta charset="utf-8">
<body style="margin:0;background:{ground};color:{text};font:16px/1.5 'DejaVu Sans',sans-serif">
<div style="padding:0 1em">{figure}
<p style="margin:0.6em 1em"><strong>Your question, 02.1.</strong> {question}</p>
<pre style="margin:0 1em 0.8em;padding:0.5em 0.8em;\
border:1px solid #8c8c8c;background:{box}">answer = {answer}
q.check(answer)</pre>{reply}</div>"""


def page(ground: str, text: str, box: str) -> str:
    """The picture as a page: figure, question, the likely mistake, and its reply."""
    found = recording(RECORDING)
    run = tidyprof.read(found.path, origin=found.origin)
    step = tidyprof.steps(run, "device").iloc[1]
    device = tidyprof.Profile(run.device_events, meta=run.meta)
    window = {"start_ns": step.start_ns, "end_ns": step.start_ns + step.duration_ns}
    drawn = plots.timeline(
        device, **window, title="One step on an MI300X: both streams run at once"
    )
    code = io.StringIO()
    with nullcontext() if ground == "#ffffff" else in_the_dark(drawn.figure):
        drawn.figure.savefig(code, format="svg", bbox_inches="tight")
    mistake = round(share_of_the_wrong_whole(run), 1)
    reply = exercise(EXERCISE, run).evaluate(mistake).notice
    question = inline_html(exercise_cell(EXERCISE).question)
    return PAGE.format(
        figure=code.getvalue()[code.getvalue().index("<svg") :].replace(
            "<svg ", '<svg style="width:100%" ', 1
        ),
        question=question,
        ground=ground,
        text=text,
        box=box,
        answer=mistake,
        reply=reply._repr_html_(),
    )


def share_of_the_wrong_whole(run: tidyprof.Profile) -> float:
    """The likely mistake: communication with no other work beside it, as a share of the whole time
    instead of the communication.
    """
    parts = tidyprof.overlap(run).sum(numeric_only=True)
    return float(100 * parts["exposed_communication_ns"] / parts["total_ns"])


def main() -> int:
    """Draw the page in each look with Chromium and cut it to its content."""
    browser = shutil.which("chromium")
    if browser is None:
        print(
            "error: chromium is not here, which draws the picture; install it and run this again",
            file=sys.stderr,
        )
        return 2
    for name, look in LOOKS.items():
        draw(browser, page(*look), look[0], DOCS / name)
    return 0


def draw(browser: str, code: str, ground: str, target: Path) -> None:
    """Write a picture of a page with this background."""
    with tempfile.TemporaryDirectory() as folder:
        source, shot = Path(folder) / "page.html", Path(folder) / "page.png"
        source.write_text(code, encoding="utf-8")
        subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--hide-scrollbars",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={shot}",
                source.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        with Image.open(shot).convert("RGB") as whole:
            content = ImageChops.difference(whole, Image.new("RGB", whole.size, ground)).getbbox()
            whole.crop((0, 0, WIDTH, content[3] + 12)).quantize(200).save(target, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
