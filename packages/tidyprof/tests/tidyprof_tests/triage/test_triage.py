"""triage on files: modelled faults, public recordings with a diagnosis by hand, the command, and
the page.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof.diagnosis import recordings as reduction
from tidyprof.plots import viewer
from tidyprof_tests.chrome_writer import HEADER, TraceEvent, call, kernel, operator, write_trace
from tidyprof_tests.conftest import REPOSITORY

SHIPPED = {
    "resnet": "launch-bound",
    "slow-loader": "late-data",
    "sync-every-step": "blocked-host",
    "unpinned-copies": "exposed-copies",
    "recompile": "recompiling",
    "rank-skew": "straggler",
    "wrong-layout": "launch-bound",
}
"""Modelled recording -> what must be found in its one step."""


def traced(name: str) -> str:
    return str(REPOSITORY / "recordings" / f"modelled-{name}" / "torch")


@pytest.mark.parametrize("name", SHIPPED)
def test_modelled_faults_are_found(name: str):
    diagnosis = tidyprof.triage(tidyprof.read(traced(name)))
    assert diagnosis.cause == SHIPPED[name]
    assert diagnosis.origins[0].startswith("modelled")
    assert diagnosis.evidence
    assert all(rival.why for rival in diagnosis.rivals)


def test_one_of_many_ranks_is_not_looked_for_in_the_events_of_all(monkeypatch: pytest.MonkeyPatch):
    largest = []
    real = reduction.timeline

    def counted(profile: tidyprof.Profile, *more: object) -> object:
        largest.append(len(profile.events))
        return real(profile, *more)

    monkeypatch.setattr(reduction, "timeline", counted)
    profile = tidyprof.read(traced("rank-skew"))
    tidyprof.triage(profile)
    assert sum(largest) == len(profile.events)
    assert len(largest) == 4


def test_files_of_several_tools_add_to_each_other(recordings: Path):
    tools = [
        tidyprof.read(traced("resnet")),
        tidyprof.read(recordings / "rocprof-compute-mi200-vcopy"),
    ]
    diagnosis = tidyprof.triage(tools[::-1])
    assert diagnosis.cause == "launch-bound"
    assert 0 < diagnosis.signs.roof_share < 1
    alone = tidyprof.triage(tools[1])
    assert alone.cause == "one-kernel"
    assert alone.signs.shares == {}


def test_the_function_under_silence_comes_from_the_stacks_of_the_file(tmp_path: Path, capsys):
    """Four steps of 50 ms, the device idle for 40 of them, in a function of the user's below one of
    torch's.
    """
    events = []
    for step in range(4):
        begin = 1_000_000 + step * 50_000_000
        names = (
            "train.py(3): main",
            "train.py(9): checkpoint",
            "torch/serialization.py(944): save",
        )
        functions = zip(names, (50, 42, 41), strict=True)
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 50_000_000),
            *(TraceEvent("python_function", name, begin + place, ms * 1_000_000)
              for place, (name, ms) in enumerate(functions)),
            operator("aten::mm", begin + 40_000_000, 9_000_000, step),
            call("hipLaunchKernel", begin + 40_000_000, 5_000, 10 + step),
            kernel("gemm", begin + 40_010_000, 9_000_000, 10 + step),
        ]  # fmt: skip
    path = write_trace(tmp_path / "trace.json", events)
    named = "torch/serialization.py(944): save, called from train.py(9): checkpoint"
    found = tidyprof.triage(tidyprof.read(path, python_functions=True))
    assert (found.cause, found.signs.host.silent_in) == ("silent-host", named)
    assert main(["triage", str(path)]) == 0
    assert f"Look into {named}" in capsys.readouterr().out
    assert "with_stack=True" in tidyprof.triage(tidyprof.read(path)).next_step


BATCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
FETCHING = "torch/utils/data/_utils/fetch.py(54): fetch"
LOADS = {
    "text.py(30): collate": (("torch/utils/data/dataloader.py(733): __next__", 39), (FETCHING, 38),
                             ("text.py(30): collate", 37), *(("text.py(9): merge", 5),) * 3),
    "text.py(9): merge": ((FETCHING, 38), ("text.py(30): collate", 37), ("text.py(9): merge", 36)),
    "csv.py(2): read, called from text.py(4): batch": (("text.py(4): batch", 38),
                                                       ("lib/python3.12/csv.py(2): read", 30)),
    "text.py(5): pack": ((FETCHING, 38), ("text.py(5): pack", 37),
                         ("/site/tidyprof/running/inside/hooks.py(92): around", 36)),
}  # fmt: skip
"""What must be named -> functions in each other, with ms, of a load of 40 ms; those of one name one
after the other.
"""


@pytest.mark.parametrize(
    ("own", "silence"),
    [
        ("/site/tidyprof/running/inside/recorder.py(92): _step", 0),
        (r"site\tidyprof\running\inside\recorder.py(92): _step", 0),
        ("instrument_me.py(184): watch_clocks", 0),
        ("/home/ada/14_instrument_me.py(184): watch_clocks", 0),
        ("my_instrument_me.py(3): pause", 0.8),
        ("/home/ada/my_instrument_me.py(3): pause", 0.8),
        ("/home/ada/untidyprof/running/inside/track.py(3): pause", 0.8),
    ],
)
def test_what_records_the_trace_is_no_silence(own: str, silence: float, tmp_path: Path) -> None:
    """The device is idle for 40 of 50 ms while the host is in a function of the hooks, of the
    block, or of a script whose name is similar.
    """
    events = []
    for step in range(4):
        begin = 1_000_000 + step * 50_000_000
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 50_000_000),
            TraceEvent("python_function", "train.py(3): main", begin, 50_000_000),
            TraceEvent("python_function", own, begin + 1, 39_900_000),
            operator("aten::mm", begin + 40_000_000, 9_000_000, step),
            call("hipLaunchKernel", begin + 40_000_000, 5_000, 10 + step),
            kernel("gemm", begin + 40_010_000, 9_000_000, 10 + step),
        ]
    path = write_trace(tmp_path / "trace.json", events)
    with_stacks = tidyprof.triage(tidyprof.read(path, python_functions=True))
    assert with_stacks.signs.shares["silent"] == pytest.approx(silence, abs=0.02)
    assert tidyprof.triage(tidyprof.read(path)).cause == "silent-host"


@pytest.mark.parametrize("gpu", [True, False], ids=["GPU", "processor"])
@pytest.mark.parametrize("workers", [False, True], ids=["alone", "workers"])
@pytest.mark.parametrize("named", LOADS)
def test_the_function_that_loads_comes_from_the_stacks(
    named: str, workers: bool, gpu: bool, tmp_path: Path, capsys
):
    """Of processes beside the training there are no stacks, and the functions that wait for them
    load nothing.
    """
    events = []
    for step in range(4):
        begin = 1_000_000 + step * 50_000_000
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 50_000_000),
            TraceEvent(
                "user_annotation",
                BATCH.replace("Single", "Multi" if workers else "Single").replace(
                    "MultiProcess", "MultiProcessing"
                ),
                begin,
                40_000_000,
            ),
            TraceEvent("python_function", "text.py(80): main", begin, 50_000_000),
            operator("aten::mm", begin + 40_000_000, 9_000_000, step),
        ]
        if gpu:
            events += [call("hipLaunchKernel", begin + 40_000_000, 5_000, 10 + step),
                       kernel("gemm", begin + 40_010_000, 9_000_000, 10 + step)]  # fmt: skip
        place, before = begin, ""
        for name, length in LOADS[named]:
            place += 11_000_000 if name == before else 100_000
            before = name
            events.append(TraceEvent("python_function", name, place, length * 1_000_000))
    header = HEADER if gpu else {"schemaVersion": 1, "deviceProperties": []}
    path = write_trace(tmp_path / "trace.json", events, header=header)
    assert main(["triage", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("late-data")
    expected = "" if workers else named.replace("csv.py(2)", "lib/python3.12/csv.py(2)")
    assert (f"Look into {expected}: do it once" in shown) == (not workers)
    assert ("collate_fn" in shown) == workers
    assert "Look into text.py(80): main" not in shown


def test_the_operator_and_module_under_late_launches_are_named(tmp_path: Path):
    """Ten gaps of 0.9 ms, six of them in a convolution, which is in two modules of one class."""
    events = []
    for place in range(10):
        begin, name = 1_000_000 + place * 1_000_000, "aten::conv2d" if place < 6 else "aten::mm"
        module = f"nn.Module: Conv2d_{place % 2}" if place < 6 else "nn.Module: Linear_0"
        events += [
            TraceEvent("python_function", module, begin, 950_000),
            operator(name, begin + 10, 940_000, place),
            call("hipLaunchKernel", begin + 900_000, 5_000, 10 + place),
            kernel("gemm", begin + 910_000, 90_000, 10 + place),
        ]
    found = tidyprof.triage(
        tidyprof.read(write_trace(tmp_path / "trace.json", events), python_functions=True)
    )
    assert found.cause == "launch-bound"
    assert "of that 56 % under aten::conv2d, 56 % under Conv2d" in found.evidence[0]


HOSTILE = (
    "</svg></style><script>alert(1)</script><img src=x onerror=alert(1)> $\\frac{1}{ --> \x1b[2J"
)


def hostile_trace(path: Path) -> Path:
    """Four steps, each with a kernel, an operator and a range of this name; the host is silent for
    40 of 50 ms.
    """
    events = []
    for step in range(4):
        begin = 1_000_000 + step * 50_000_000
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 50_000_000),
            TraceEvent("user_annotation", f"enumerate(DataLoader)#{HOSTILE}", begin, 1_000),
            operator(HOSTILE, begin + 100, 500, 100 + step),
            operator(HOSTILE, begin + 40_000_000, 9_000_000, step),
            call("hipLaunchKernel", begin + 40_000_000, 5_000, 10 + step),
            kernel(HOSTILE, begin + 40_010_000, 9_000_000, 10 + step),
        ]
    return write_trace(path, events)


def processor_trace(
    path: Path, parts: list[tuple[str, str, int]], header: dict[str, object] | None = None
) -> Path:
    """Four steps of 100 ms on a processor, each with these parts one after the other: category,
    name, ms.
    """
    events = []
    for step in range(4):
        begin = 1_000_000 + step * 100_000_000
        events.append(TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 100_000_000))
        for category, name, length in parts:
            events.append(TraceEvent(category, name, begin, length * 1_000_000))
            begin += length * 1_000_000
    return write_trace(
        path,
        events,
        header={"schemaVersion": 1, "deviceProperties": []} if header is None else header,
    )


LOADING = ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")


@pytest.mark.parametrize(
    ("cause", "share", "parts"),
    [
        ("late-data", 0.7, [(*LOADING, 70), ("cpu_op", "aten::mm", 30)]),
        ("silent-host", 0.6, [("cpu_op", "aten::mm", 40)]),
        (
            "recompiling",
            0.8,
            [("cpu_op", "compile_inner (dynamo_timed)", 80), ("cpu_op", "aten::mm", 20)],
        ),
        ("healthy", 0.9, [(*LOADING, 5), ("cpu_op", "aten::mm", 90)]),
    ],
)
def test_a_run_without_a_gpu_is_told_from_its_operators(
    cause: str, share: float, parts: list, tmp_path: Path, capsys
):
    path, target = processor_trace(tmp_path / "trace.json", parts), tmp_path / "page.html"
    found = tidyprof.triage(tidyprof.read(path))
    # Whether the thread had a processor was not recorded.
    assert (found.cause, found.sure, found.signs.steps, found.signs.steady) == (
        cause,
        cause != "silent-host",
        4,
        3,
    )
    assert any(
        sentence.startswith("judged are 3 of 4 steps (the first left out), a mean of 100 ms each")
        for sentence in found.evidence
    )
    assert found.share == pytest.approx(share)
    assert {rival.name for rival in found.rivals} <= {
        *("late-data", "silent-host", "recompiling", "start-up", "many-operators"),
    }
    assert main(["triage", str(path), "--html", str(target)]) == 0
    shown = capsys.readouterr().out
    assert "no GPU took part" in shown
    assert not any(word in shown for word in ("device", "rocprof", "amd-smi"))
    page = target.read_text(encoding="utf-8")
    assert page.count("<svg") == 2 * page.count("<figcaption>") == 6
    assert "The largest is" in page
    assert "Where each traced step went; the first is not judged" in page
    assert "\N{REPLACEMENT CHARACTER}" not in page, "a blank that keeps % on its line can be shown"
    assert re.search(r"</h1>\n<dl>\n<dt>next</dt>", page), "what to do is below the verdict"


def test_a_processor_that_computes_is_told_in_which_operator_and_below_which_function(
    tmp_path: Path,
):
    """Sorting takes 40 of 90 ms without the copy in it, in a callback."""
    ms, events = 1_000_000, []
    for step in range(4):
        begin = (1 + step * 100) * ms
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 100 * ms),
            TraceEvent("python_function", "train.py(7): on_after_backward", begin, 61 * ms),
            TraceEvent("cpu_op", "aten::sort", begin, 60 * ms),
            TraceEvent("cpu_op", "aten::copy_", begin + 10 * ms, 20 * ms),
            TraceEvent("cpu_op", "aten::mm", begin + 65 * ms, 30 * ms),
        ]
    header = {"schemaVersion": 1, "deviceProperties": []}
    path = write_trace(tmp_path / "trace.json", events, header=header)
    found = tidyprof.triage(tidyprof.read(path, python_functions=True))
    assert found.cause == "healthy"
    words = "aten::sort takes 44 % of what the operators take"
    assert f"{words}, mostly in train.py(7): on_after_backward (call stacks) (operators)" in (
        found.evidence
    )
    assert f"{words} (operators)" in tidyprof.triage(tidyprof.read(path)).evidence


@pytest.mark.parametrize(
    ("function", "where"),
    [
        ("train.py(7): backward", ", mostly in train.py(7): backward (call stacks)"),
        ("code/train.py(7): backward", ", mostly in code/train.py(7): backward (call stacks)"),
        ("contextlib.py(132): __enter__", ""),
        ("multiprocessing/queues.py(98): get", ""),
        ("tidyprof/running/inside/hooks.py(285): around_backward", ""),
    ],
)
def test_of_a_function_within_the_operator_only_the_script_s_own_is_named(
    function: str, where: str, tmp_path: Path
) -> None:
    """A backward that somebody wrote is called by its operator. torch names files of Python's own
    library without their folder, as it does the script's.
    """
    ms, events = 1_000_000, []
    for step in range(4):
        begin = (1 + 100 * step) * ms
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 100 * ms),
            TraceEvent("cpu_op", "OwnBackward", begin, 90 * ms),
            TraceEvent("python_function", function, begin + ms, 80 * ms),
        ]
    header = {"schemaVersion": 1, "deviceProperties": []}
    path = write_trace(tmp_path / "trace.json", events, header=header)
    evidence = tidyprof.triage(tidyprof.read(path, python_functions=True)).evidence
    assert f"OwnBackward takes 100 % of what the operators take{where} (operators)" in evidence


def test_operators_alone_say_nothing_where_a_gpu_is_built_in(tmp_path: Path):
    path = processor_trace(tmp_path / "trace.json", [("cpu_op", "aten::mm", 90)], header=HEADER)
    assert tidyprof.triage(tidyprof.read(path)).cause == "can't tell"


@pytest.mark.parametrize("category", ["privateuse1_runtime", "hpu_op", "cuda_runtime"])
def test_an_accelerator_that_is_not_known_is_no_processor(category: str, tmp_path: Path):
    path = processor_trace(
        tmp_path / "trace.json", [("cpu_op", "aten::mm", 50), (category, "otherLaunchKernel", 40)]
    )
    found = tidyprof.triage(tidyprof.read(path))
    assert (found.cause, found.sure) == ("can't tell", False)
    assert (
        f"4 events of the category {category} are of an accelerator that tidyprof does not know"
        in found.title
    )


def test_ranges_in_rounds_are_steps_and_the_report_says_so(tmp_path: Path):
    events = []
    for place in range(6):
        begin = 1_000_000 + place * 10_000_000
        events += [
            TraceEvent("user_annotation", ("encode", "decode")[place % 2], begin, 9_000_000),
            operator("aten::mm", begin, 8_000_000, place),
            call("hipLaunchKernel", begin, 5_000, 10 + place),
            kernel("gemm", begin + 10_000, 9_000_000, 10 + place),
        ]
    found = tidyprof.triage(tidyprof.read(write_trace(tmp_path / "trace.json", events)))
    assert (found.signs.steps, found.signs.mark) == (3, "encode")
    assert any("from each `encode` to the next" in sentence for sentence in found.evidence)


class Elements(HTMLParser):
    """The elements of a page and the attributes that could fetch or run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.suspicious: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            fetches = name in ("src", "href", "xlink:href") and not str(value).startswith("#")
            if fetches or name.startswith("on"):
                self.suspicious.append((name, value))


def test_no_text_of_a_file_becomes_part_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path, target = hostile_trace(tmp_path / "trace.json"), tmp_path / "page.html"
    assert main(["triage", str(path), "--html", str(target)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("silent-host: ")
    assert "\x1b" not in shown
    page = target.read_text(encoding="utf-8")
    elements = Elements(page)
    assert elements.suspicious == []
    assert elements.tags.isdisjoint({"img", "link", "iframe"})
    scripts = re.findall(r"<script[^>]*>.*?</script>", page, re.DOTALL)
    assert scripts[-1] == viewer.script()
    (shown,) = (re.sub(r"</?script[^>]*>", "", one) for one in scripts[:-1])
    assert json.loads(shown)["things"] == "events"
    assert page.count("<script") == page.count("</script") == 2
    assert page.count("<svg") == page.count("</svg>") == 2 * page.count("<figcaption>") == 6
    used = set(re.findall(r"url\(#([^)]+)\)", page))
    assert {name.startswith("dark-") for name in used} == {
        True,
        False,
    }, "a picture that is hidden lends its own none"
    assert all(f'id="{name}"' in page for name in used)
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no such file"),
        (
            [traced("resnet"), "--mark", "nowhere"],
            "no range, operator or call on the host is named 'nowhere'",
        ),
        ([traced("resnet"), "--json", "no/folder/x.json"], "give --json another file"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["triage", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
