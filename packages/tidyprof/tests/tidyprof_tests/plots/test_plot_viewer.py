"""The data of a figure's viewer: the truth by hand, within its bounds, and harmless in a page."""

from __future__ import annotations

import json
import re
from itertools import accumulate, chain, repeat
from typing import Any

import pandas as pd

from tidyprof import plots
from tidyprof.plots import viewer
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of
from tidyprof_tests.plots.test_plot_counters import profile_of as counted
from tidyprof_tests.plots.test_plot_memory import history, phases

HOSTILE = (
    "</script><script>window.broken=1</script><img src=x onerror=alert(1)> & \" ' \x1b\u202e\u2028"
)
MOST_BYTES = 40_000


def data_of(figure: Any) -> dict[str, Any]:
    """What the script reads, with runs and differences written out."""
    data = json.loads(figure.closer)
    for name, column in data.items():
        if isinstance(column, dict):
            runs = column["runs"]
            pairs = zip(runs[::2], runs[1::2], strict=True)
            data[name] = [*chain.from_iterable(repeat(*pair) for pair in pairs)]
    return data | {"start": [*accumulate(data["start"])]}


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
        kernel("add", 10_000, 12_500, launch_ns=4_000),
        kernel("mul", 70_000, 71_000, launch_ns=45_000),
        event("copy", "Memcpy HtoD", 95_000, 96_000, device=0),
    )


def events_of(data: dict[str, Any]) -> list[tuple]:
    known = iter(data["launched"])
    launched = [next(known) if one else None for one in data["known"]]
    return [
        (
            data["lanes"][data["row"][place]],
            data["names"][data["name"][place]][0],
            data["start"][place],
            data["length"][place],
            launched[place],
            data["parts"][data["part"][place]],
            data["looks"][data["look"][place]][0],
        )
        for place in range(len(data["start"]))
    ]


def test_a_timeline_tells_of_each_event_its_lane_name_times_launch_and_part_of_the_step() -> None:
    data = data_of(plots.timeline(step(), start_ns=1_000, end_ns=101_000, title="One"))
    mark = "ProfilerStep#7"
    assert events_of(data) == [
        ("steps", mark, 0, 100_000, None, "", "range"),
        ("ranges", "forward", 0, 49_000, None, mark, "range"),
        ("ranges", "optimizer", 59_000, 30_000, None, mark, "range"),
        ("operators", "Add", 1_000, 38_000, None, f"{mark}, forward", "operator"),
        ("stream 0", "add", 9_000, 2_500, 6_000, f"{mark}, forward", "kernel"),
        ("stream 0", "mul", 69_000, 1_000, 25_000, f"{mark}, forward", "kernel"),
        ("stream 0", "Memcpy HtoD", 94_000, 1_000, None, mark, "copy"),
    ]
    assert [data[key] for key in ("span", "left", "title", "unit")] == [100_000, 0, "One", "ns"]
    assert ["add", "void add<float>(int)"] in data["names"]


def test_an_event_that_began_before_the_window_keeps_its_times() -> None:
    data = data_of(plots.timeline(step(), start_ns=11_000, end_ns=20_000))
    (kernel,) = [one for one in events_of(data) if one[1] == "add"]
    assert kernel[2:5] == (-1_000, 2_500, 6_000)


def test_too_many_events_cost_the_lane_that_has_them_and_the_lane_says_so() -> None:
    many = [event("operator", f"op{n % 7}", 10 * n, 10 * n + 5 + n % 3) for n in range(40_000)]
    few = [event("kernel", "tiny", 1_000 * n, 1_000 * n + 1, device=0) for n in range(300)]
    data = data_of(figure := plots.timeline(profile_of(*many, *few)))
    assert len(figure.closer) <= viewer.LIMIT_BYTES
    shown = len(data["start"])
    assert data["left"] == 40_300 - shown > 0
    assert data["lanes"] == [f"operators: the longest {shown - 300:,} of 40,000", "stream 0"]
    assert data["row"].count(1) == 300
    kept = [length for length, row in zip(data["length"], data["row"], strict=True) if not row]
    assert min(kept) >= 6
    assert kept.count(7) == 13_333


def test_long_names_are_cut_and_the_bound_holds() -> None:
    names = [f"{n}{'long_name_' * 90}" for n in range(3_000)]
    rows = [event("kernel", one, 10 * n, 10 * n + 5, device=0) for n, one in enumerate(names)]
    data = data_of(figure := plots.timeline(profile_of(*rows)))
    assert len(figure.closer) <= viewer.LIMIT_BYTES
    assert data["left"] == 3_000 - len(data["start"]) > 0
    assert max(len(text) for pair in data["names"] for text in pair) == viewer.LONGEST_NAME


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


def test_memory_is_told_change_by_change_with_its_phase() -> None:
    mebibyte = 2**20
    data = data_of(plots.memory(counted(*history()), phases=phases(), title="Two tensors"))
    assert [name for name, *_ in data["looks"]] == ["reserved memory", "requested memory"]
    assert (data["start"], data["look"]) == ([0, 1, 2, 3], [0, 1, 1, 1])
    assert data["value"] == [20 * mebibyte, 8 * mebibyte, 4 * mebibyte, -8 * mebibyte]
    assert [band[:3] for band in data["bands"]] == [["forward", 0, 3], ["backward", 3, 4]]
    assert (data["span"], data["left"]) == (4, 0)


def test_of_too_many_changes_the_largest_are_kept_with_their_true_values() -> None:
    values = [float(n % 2 + 1_000 * (n >= 30_000)) for n in range(60_000)]
    rows = [(n, 0, "allocated memory", value, "bytes") for n, value in enumerate(values)]
    data = data_of(figure := plots.memory(counted(*rows)))
    assert len(figure.closer) <= viewer.LIMIT_BYTES
    assert data["left"] == 60_000 - len(data["start"]) > 0
    assert [*accumulate(data["value"])] == [values[place] for place in data["start"]]
    assert 30_000 in data["start"]


def test_of_too_many_phases_the_longest_are_shaded_and_it_says_so() -> None:
    rows = [(n, 0, "allocated memory", float(n + 1), "bytes") for n in range(4_000)]
    profile = counted(*rows)
    begin = profile.counters["time_ns"].to_numpy()[:-1:1]
    ranges = pd.DataFrame({"name": "part", "start_ns": begin, "duration_ns": 10**9})
    ranges.loc[3_000, "duration_ns"] *= 2
    data = data_of(plots.memory(profile, phases=ranges))
    assert len(data["bands"]) == viewer.MOST_BANDS
    assert data["bands"][0][1:3] == [3_000, 3_002]
    assert data["axis"].endswith("shaded are the longest 2,000 of 3,999 phases")


def test_call_stacks_are_told_whole_where_the_picture_folds_and_leaves_out() -> None:
    columns = ["short_name", "depth", "parent", "total_ns", "self_ns"]
    rows = [
        ("main", 0, pd.NA, 1_000, 0),
        ("loop", 1, 0, 1_000, 10),
        ("work", 2, 1, 989, 989),
        ("rare", 2, 1, 1, 1),
    ]
    table = pd.DataFrame(rows, columns=columns).assign(
        rank=0, process=1, thread=1, count=1, self_count=1
    )
    table.attrs["origin"] = "measured: by hand"
    data = data_of(plots.call_stacks(table))
    names = [data["names"][place] for place in data["name"]]
    assert names == [["… loop", "main > loop"], ["work", ""], ["rare", ""]]
    assert (data["row"], data["start"]) == ([0, 1, 1], [0, 0, 989])
    assert (data["length"], data["own"]) == ([1_000, 989, 1], [10, 989, 1])
    assert (data["left"], data["unit"], data["lanes"]) == (0, "ns", ["", ""])


def test_the_script_is_small_and_asks_nobody_for_anything() -> None:
    script = viewer.script()
    assert len(script.encode()) <= MOST_BYTES
    asked = r"https?:|//\w+\.|\bfetch\b|XMLHttp|import|\beval\b|WebSocket|innerHTML|insertAdjacent"
    assert re.findall(asked, script) == []
    assert script.count("</script") == 1


def test_a_figure_without_events_of_its_own_has_no_viewer() -> None:
    table = pd.DataFrame({"step": [0, 1], "duration_ns": [1_000_000, 2_000_000]})
    table.attrs["origin"] = "modelled: by hand"
    assert "<script" not in plots.step_times(table)._repr_html_()
