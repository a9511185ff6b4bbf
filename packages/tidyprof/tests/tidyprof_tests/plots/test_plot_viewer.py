"""The data of a figure's viewer: the truth by hand, within its bounds, and harmless in a page."""

from __future__ import annotations

import json
import re
from typing import Any

from tidyprof import plots
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of

HOSTILE = (
    "</script><script>window.broken=1</script><img src=x onerror=alert(1)> & \" ' \x1b\u202e\u2028"
)


def data_of(figure: Any) -> dict[str, Any]:
    """What the script reads."""
    return json.loads(figure.closer)


def kernel(name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """A kernel whose name has a short form."""
    whole = f"void {name}<float>(int)"
    return event("kernel", whole, start, end, short_name=name, device=0, **more)


def step() -> Any:
    """One step with two ranges; the second kernel runs after the range that launched it."""
    return profile_of(
        host_step(7, 1_000, 101_000),
        event("annotation", "forward", 1_000, 50_000),
        event("annotation", "optimizer", 60_000, 90_000),
        event("operator", "autograd::engine::evaluate_function: Add", 2_000, 40_000),
        event("operator", "aten::add", 3_000, 39_000),
        kernel("add", 10_000, 12_500, launch_ns=4_000),
        kernel("mul", 70_000, 71_000, launch_ns=45_000),
        event("copy", "Memcpy HtoD", 95_000, 96_000, device=0),
    )


def events_of(data: dict[str, Any]) -> list[tuple]:
    return [
        (
            data["lanes"][data["row"][place]],
            data["names"][data["name"][place]][0],
            data["start"][place],
            data["length"][place],
            data["launched"][place],
            data["looks"][data["look"][place]][0],
        )
        for place in range(len(data["start"]))
    ]


def test_a_timeline_tells_of_each_event_its_lane_name_times_and_launch() -> None:
    data = data_of(plots.timeline(step(), start_ns=1_000, end_ns=101_000, title="One"))
    assert events_of(data) == [
        ("steps", "ProfilerStep#7", 0, 100_000, None, "range"),
        ("ranges", "forward", 0, 49_000, None, "forward"),
        ("ranges", "optimizer", 59_000, 30_000, None, "optimizer"),
        ("operators", "Add", 1_000, 38_000, None, "operator"),
        ("operators", "aten::add", 2_000, 36_000, None, "operator"),
        ("stream 0", "add", 9_000, 2_500, 6_000, "kernel"),
        ("stream 0", "mul", 69_000, 1_000, 25_000, "kernel"),
        ("stream 0", "Memcpy HtoD", 94_000, 1_000, None, "copy"),
    ]
    assert [data[key] for key in ("span", "left", "title", "unit")] == [100_000, 0, "One", "ns"]
    assert ["add", "void add<float>(int)"] in data["names"]


def test_no_name_becomes_a_part_of_the_page() -> None:
    hostile = profile_of(event("kernel", HOSTILE, 0, 10, device=0))
    shown = plots.timeline(hostile, title=HOSTILE)._repr_html_()
    (inside,) = re.findall(r'<script type="application/json">(.*?)</script>', shown)
    assert set("<>&").isdisjoint(inside)
    assert inside.isascii()
    data = json.loads(inside)
    for text in (data["title"], data["names"][0][1] or data["names"][0][0]):
        assert text.isprintable()
        assert text.startswith("</script><script>window.broken=1")
    assert shown.count("<script") == shown.count("</script>") == 2
