"""triage on files: modelled faults, public recordings with a diagnosis by hand, the command, and
the page.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof.diagnosis import recordings as reduction
from tidyprof.plots import viewer
from tidyprof_tests.chrome_writer import HEADER, TraceEvent, call, kernel, operator, write_trace
from tidyprof_tests.conftest import REPOSITORY

MS = 1_000_000
SHIPPED = {
    "resnet": "launch-bound",
    "slow-loader": "input-bound",
    "sync-every-step": "sync-bound",
    "unpinned-copies": "exposed-copies",
    "recompile": "recompilation",
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
    assert all(alternative.why for alternative in diagnosis.alternatives)


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
    assert alone.cause == "dominant-kernel"
    assert alone.signs.shares == {}


WITHOUT_A_GPU = {"schemaVersion": 1, "deviceProperties": []}
Part = tuple[str, str, float, float]
"""Category, name, when in the step it begins, and how long it lasts, in ms."""


def four_steps(
    folder: Path,
    step_ms: int,
    parts: list[Part],
    gpu: bool = False,
    header: Any = None,
    name: str = "gemm",
) -> Path:
    """A trace of four steps with these parts; with a GPU the last 10 ms of a step launch a kernel
    of this name, of 9 ms.
    """
    events = []
    for step in range(4):
        begin = 1_000_000 * (1 + step * step_ms)
        events.append(TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, step_ms * MS))
        for category, part, at, length in parts:
            start = begin + round(at * MS)
            events.append(TraceEvent(category, part, start, round(length * MS)))
        if gpu:
            launch = begin + (step_ms - 10) * MS
            events += [
                operator("aten::mm", launch, 9 * MS, step),
                call("hipLaunchKernel", launch, 5_000, 10 + step),
                kernel(name, launch + 10_000, 9 * MS, 10 + step),
            ]
    header = header or (HEADER if gpu else WITHOUT_A_GPU)
    return write_trace(folder / "trace.json", events, header=header)


def with_stacks(path: Path) -> tidyprof.Diagnosis:
    return tidyprof.triage(tidyprof.read(path, python_functions=True))


def functions(*named: tuple[str, float, float]) -> list[Part]:
    return [("python_function", *one) for one in named]


def test_the_function_under_silence_comes_from_the_stacks_of_the_file(tmp_path: Path, capsys):
    """The device is idle for 40 of 50 ms, in a function of the user's below one of torch's."""
    save, checkpoint = "torch/serialization.py(944): save", "train.py(9): checkpoint"
    parts = functions(("train.py(3): main", 0, 50), (checkpoint, 0, 42), (save, 0.001, 41))
    path = four_steps(tmp_path, 50, parts, gpu=True)
    found = with_stacks(path)
    named = f"{save}, called from {checkpoint}"
    assert (found.cause, found.signs.host.silent_in) == ("outside-torch", named)
    assert main(["triage", str(path)]) == 0
    assert checkpoint in capsys.readouterr().out, "the command reads stacks"
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
    parts = functions(("train.py(3): main", 0, 50), (own, 0, 39.9))
    path = four_steps(tmp_path, 50, parts, gpu=True)
    assert with_stacks(path).signs.shares["silent"] == pytest.approx(silence, abs=0.02)
    assert tidyprof.triage(tidyprof.read(path)).cause == "outside-torch"


@pytest.mark.parametrize("gpu", [True, False], ids=["GPU", "processor"])
@pytest.mark.parametrize("workers", [False, True], ids=["alone", "workers"])
@pytest.mark.parametrize("named", LOADS)
def test_the_function_that_loads_comes_from_the_stacks(
    named: str, workers: bool, gpu: bool, tmp_path: Path
):
    """Of processes beside the training there are no stacks, and the functions that wait for them
    load nothing.
    """
    batch = BATCH.replace("SingleProcess", "MultiProcessing") if workers else BATCH
    parts: list[Part] = [("user_annotation", batch, 0, 40)]
    parts += functions(("text.py(80): main", 0, 50))
    if not gpu:
        parts.append(("cpu_op", "aten::mm", 40, 9))
    place, before = 0.0, ""
    for name, length in LOADS[named]:
        place += 11 if name == before else 0.1
        before = name
        parts += functions((name, place, length))
    found = with_stacks(four_steps(tmp_path, 50, parts, gpu))
    assert found.cause == "input-bound"
    expected = "" if workers else named.replace("csv.py(2)", "lib/python3.12/csv.py(2)")
    assert found.signs.host.loading_in == expected


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
    for named, name in ((found.signs.under, "aten::conv2d"), (found.signs.module, "Conv2d")):
        assert (named.name, named.amount) == (name, pytest.approx(0.56, abs=0.01))


HOSTILE = (
    "</svg></style><script>alert(1)</script><img src=x onerror=alert(1)> $\\frac{1}{ --> \x1b[2J"
)


LOADING = ("user_annotation", BATCH)


@pytest.mark.parametrize(
    ("cause", "share", "parts"),
    [
        ("input-bound", 0.7, [(*LOADING, 0, 70), ("cpu_op", "aten::mm", 70, 30)]),
        ("outside-torch", 0.6, [("cpu_op", "aten::mm", 0, 40)]),
        (
            "recompilation",
            0.8,
            [("cpu_op", "compile_inner (dynamo_timed)", 0, 80), ("cpu_op", "aten::mm", 80, 20)],
        ),
        ("no-bottleneck", 0.9, [(*LOADING, 0, 5), ("cpu_op", "aten::mm", 5, 90)]),
    ],
)
def test_a_run_without_a_gpu_is_told_from_its_operators(
    cause: str, share: float, parts: list[Part], tmp_path: Path, capsys
):
    path, target = four_steps(tmp_path, 100, parts), tmp_path / "page.html"
    found = tidyprof.triage(tidyprof.read(path))
    # Whether the thread had a processor was not recorded.
    assert (found.cause, found.confident) == (cause, cause != "outside-torch")
    assert (found.signs.steps, found.signs.steady, found.signs.step_ns) == (4, 3, 100 * MS)
    assert found.share == pytest.approx(share)
    assert {alternative.name for alternative in found.alternatives} <= {
        *("input-bound", "outside-torch", "recompilation", "startup", "operator-overhead"),
    }
    assert main(["triage", str(path), "--html", str(target)]) == 0
    assert not any(word in capsys.readouterr().out for word in ("device", "rocprof", "amd-smi"))
    page = target.read_text(encoding="utf-8")
    assert page.count("<svg") == 2 * page.count("<figcaption>") == 6


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("train.py(7): backward", True),
        ("code/train.py(7): backward", True),
        ("contextlib.py(132): __enter__", False),
        ("multiprocessing/queues.py(98): get", False),
        ("tidyprof/running/inside/hooks.py(285): around_backward", False),
    ],
)
def test_the_largest_operator_is_told_with_the_script_s_own_function_around_or_in_it(
    function: str, named: bool, tmp_path: Path
) -> None:
    """Sorting takes 40 of 90 ms without the copy in it. torch names files of Python's own library
    without their folder, as it does the script's.
    """
    operators = [("aten::sort", 0, 60), ("aten::copy_", 10, 20), ("aten::mm", 65, 30)]
    parts: list[Part] = [("cpu_op", *one) for one in operators]
    for place, length in ((0, 61), (1, 58)):
        path = four_steps(tmp_path, 100, [*parts, *functions((function, place, length))])
        found = with_stacks(path)
        assert found.cause == "no-bottleneck"
        largest = found.signs.largest_operator
        assert (largest.name, largest.share) == ("aten::sort", pytest.approx(4 / 9))
        assert largest.function == (function if named else "")
    assert tidyprof.triage(tidyprof.read(path)).signs.largest_operator.function == ""


@pytest.mark.parametrize("category", ["privateuse1_runtime", "hpu_op", "cuda_runtime", ""])
def test_operators_alone_say_nothing_where_there_is_an_accelerator(category: str, tmp_path: Path):
    parts: list[Part] = [("cpu_op", "aten::mm", 0, 50)]
    parts += [(category, "otherLaunchKernel", 50, 40)] if category else []
    path = four_steps(tmp_path, 100, parts, header=None if category else HEADER)
    found = tidyprof.triage(tidyprof.read(path))
    assert (found.cause, found.confident) == ("inconclusive", False)


def test_ranges_in_rounds_are_steps(tmp_path: Path):
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
    parts: list[Part] = [
        ("user_annotation", f"enumerate(DataLoader)#{HOSTILE}", 0, 0.001),
        ("cpu_op", HOSTILE, 0.0001, 0.0005),
    ]
    path = four_steps(tmp_path, 50, parts, gpu=True, name=HOSTILE)
    target = tmp_path / "page.html"
    assert main(["triage", str(path), "--html", str(target)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("outside-torch: ")
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
    "arguments",
    [
        ["nothing"],
        [traced("resnet"), "--step-marker", "nowhere"],
        [traced("resnet"), "--json", "no/folder/x.json"],
    ],
)
def test_mistakes_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["triage", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
