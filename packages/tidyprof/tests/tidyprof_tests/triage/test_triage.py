"""triage on files: modeled faults, call stacks, runs without a GPU, several tools, and the page.
Times in ms.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof.plots import viewer
from tidyprof_tests.chrome_writer import HEADER
from tidyprof_tests.conftest import of_the_course
from tidyprof_tests.triage.traces import (
    CUDA,
    MS,
    WITHOUT_A_GPU,
    Fill,
    Step,
    check_laws,
    facts,
    shares,
    trace,
    triaged,
    verdict,
)

SHIPPED = {
    "resnet": "launch-bound",
    "slow-loader": "input-bound",
    "sync-every-step": "sync-bound",
    "unpinned-copies": "exposed-copies",
    "recompile": "outside-torch",  # the file has no range of the compiler
    "rank-skew": "straggler",
    "wrong-layout": "launch-bound",
}
"""Modeled recording -> what must be found in its one step."""


def traced(name: str) -> str:
    return str(of_the_course(f"recordings/modeled-{name}/torch"))


@pytest.mark.parametrize("name", SHIPPED)
def test_modeled_faults_are_found(name: str) -> None:
    found = tidyprof.diagnose(tidyprof.read(traced(name)))
    assert found.cause == SHIPPED[name]
    assert not (found.confident and name == "recompile")
    assert found.origins[0].startswith("modeled")
    check_laws(found)


def test_files_of_several_tools_add_to_each_other(recordings: Path) -> None:
    counted = tidyprof.read(recordings / "rocprof-compute-mi200-vcopy")
    found = tidyprof.diagnose([counted, tidyprof.read(traced("resnet"))])
    assert found.cause == "launch-bound"
    alone = tidyprof.diagnose(counted)
    assert (alone.cause, alone.parts) == ("dominant-kernel", ())


def with_kernel(fill: Fill, name: str = "gemm") -> Fill:
    """The last 10 of 50 ms launch a kernel of 9."""

    def filled(step: Step) -> None:
        step.operator("aten::mm", 40, 9)
        step.launch(40, 9, name)
        fill(step)

    return filled


def functions(*named: tuple[str, float, float]) -> Fill:
    def fill(step: Step) -> None:
        for one in named:
            step.function(*one)

    return fill


def test_the_function_with_the_loop_comes_from_the_stacks(tmp_path: Path) -> None:
    def fill(step: Step) -> None:
        step.function("train.py(3): main", 0, 50)
        step.function("train.py(9): clip", 5, 40)
        for number in range(2000):
            step.operator("aten::norm", 5 + 0.02 * number, 0.015)

    found = triaged(tmp_path, 50, fill, header=WITHOUT_A_GPU)
    assert (found.cause, facts(found)["loop"]) == ("operator-overhead", "train.py(9): clip")
    assert "train.py(9): clip" in found.why


def test_the_function_under_silence_comes_from_the_stacks_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is in a function of the user's below one of torch's. The command reads stacks, too."""
    save, checkpoint = "torch/serialization.py(944): save", "train.py(9): checkpoint"
    stacks = functions(("train.py(3): main", 0, 50), (checkpoint, 0, 42), (save, 0.001, 41))
    found = triaged(tmp_path, 50, with_kernel(stacks))
    assert (found.cause, facts(found)["outside_function"]) == ("outside-torch", checkpoint)
    assert main(["triage", str(tmp_path / "trace.json")]) == 0
    assert "checkpoint" in capsys.readouterr().out
    without = tidyprof.diagnose(tidyprof.read(tmp_path / "trace.json"))
    assert "--with-stack" in without.next_step


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
    stacks = functions(("train.py(3): main", 0, 50), (own, 0, 39.9))
    found = triaged(tmp_path, 50, with_kernel(stacks))
    assert shares(found)["outside PyTorch"] == pytest.approx(silence, abs=0.02)
    without = tidyprof.diagnose(tidyprof.read(tmp_path / "trace.json"))
    assert without.cause == "outside-torch"


BATCH = "enumerate(DataLoader)#_{}Iter.__next__"
FETCHING = "torch/utils/data/_utils/fetch.py(54): fetch"
LOADS = {
    "text.py(30): collate": (("torch/utils/data/dataloader.py(733): __next__", 39), (FETCHING, 38),
                             ("text.py(30): collate", 37), *(("text.py(9): merge", 5),) * 3),
    "text.py(4): batch": (
        ("text.py(4): batch", 38), ("lib/python3.12/csv.py(2): read", 30)),
    "text.py(5): pack": ((FETCHING, 38), ("text.py(5): pack", 37),
                         ("/site/tidyprof/running/inside/hooks.py(92): around", 36)),
}  # fmt: skip
"""What must be named -> functions in each other, with ms, of a load of 40 ms; those of one name one
after the other.
"""


@pytest.mark.parametrize("gpu", [True, False], ids=["GPU", "CPU"])
@pytest.mark.parametrize("loader", ["SingleProcess", "MultiProcessing"])
@pytest.mark.parametrize("named", LOADS)
def test_the_function_that_loads_comes_from_the_stacks(
    named: str, loader: str, gpu: bool, tmp_path: Path
) -> None:
    """Loader processes have no stacks in the file, and the functions that wait for them load
    nothing.
    """

    def fill(step: Step) -> None:
        step.part(BATCH.format(f"{loader}DataLoader"), 0, 40)
        step.function("text.py(80): main", 0, 50)
        place, before = 0.0, ""
        for name, length in LOADS[named]:
            place += 11 if name == before else 0.1
            before = name
            step.function(name, place, length)
        if not gpu:
            step.operator("aten::mm", 40, 9)

    steps = with_kernel(fill) if gpu else fill
    found = triaged(tmp_path, 50, steps, header=CUDA if gpu else WITHOUT_A_GPU)
    assert found.cause == "input-bound"
    expected = named if loader == "SingleProcess" else None
    assert facts(found).get("loading_function") == expected


def on_cpu(*work: tuple[str, float, float]) -> Fill:
    """Operators, and ranges of a loader, with their times."""

    def fill(step: Step) -> None:
        for name, at, length in work:
            (step.part if "DataLoader" in name else step.operator)(name, at, length)

    return fill


LOADING = BATCH.format("SingleProcessDataLoader")


@pytest.mark.parametrize(
    ("cause", "share", "work"),
    [
        ("input-bound", 0.7, [(LOADING, 0, 70), ("aten::mm", 70, 30)]),
        ("outside-torch", 0.6, [("aten::mm", 0, 40)]),
        ("recompilation", 0.8, [("compile_inner (dynamo_timed)", 0, 80), ("aten::mm", 80, 20)]),
        ("no-bottleneck", 0.9, [(LOADING, 0, 5), ("aten::mm", 5, 90)]),
    ],
)
def test_a_run_without_a_gpu_is_judged_by_its_operators(
    cause: str,
    share: float,
    work: list[tuple[str, float, float]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = triaged(tmp_path, 100, on_cpu(*work), header=WITHOUT_A_GPU)
    # Whether the thread had a CPU core wasn't recorded.
    assert verdict(found) == (cause, cause != "outside-torch")
    assert (found.share, found.step_ns) == (pytest.approx(share), 100 * MS)
    assert (facts(found)["steps"], facts(found)["judged_steps"]) == (4, 3)
    path, target = tmp_path / "trace.json", tmp_path / "page.html"
    assert main(["triage", str(path), "--why", "--html", str(target)]) == 0
    shown = capsys.readouterr().out
    assert not any(word in shown for word in ("rocprof", "amd-smi", "launch-bound"))
    page = target.read_text(encoding="utf-8")
    assert page.count("<svg") == page.count("<figcaption>") == 1


@pytest.mark.parametrize("category", ["privateuse1_runtime", "hpu_op", "cuda_runtime", ""])
def test_operators_alone_are_inconclusive_if_there_was_an_accelerator(
    category: str, tmp_path: Path
) -> None:
    def fill(step: Step) -> None:
        step.operator("aten::mm", 0, 50)
        if category:
            step.part("otherLaunchKernel", 50, 40, category=category)

    found = triaged(tmp_path, 100, fill, header=WITHOUT_A_GPU if category else HEADER)
    assert verdict(found) == ("inconclusive", False)


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
            within = str(value).startswith(("#", "data:image/png;base64,"))
            fetches = name in ("src", "href", "xlink:href") and not within
            if fetches or name.startswith("on"):
                self.suspicious.append((name, value))


HOSTILE = (
    "</svg></style><script>alert(1)</script><img src=x onerror=alert(1)> $\\frac{1}{ --> \x1b[2J"
)


def test_no_text_of_a_file_becomes_part_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(step: Step) -> None:
        step.part(f"enumerate(DataLoader)#{HOSTILE}", 0, 0.001)
        step.operator(HOSTILE, 0.0001, 0.0005)
        step.function(f"{HOSTILE}.py(3): f", 0, 39)

    path = trace(tmp_path / "trace.json", 50, with_kernel(fill, HOSTILE))
    target = tmp_path / "page.html"
    assert main(["triage", str(path), "--why", "--html", str(target)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    page = target.read_text(encoding="utf-8")
    elements = Elements(page)
    assert elements.suspicious == []
    assert elements.tags.isdisjoint({"img", "link", "iframe"})
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert viewer.script().endswith(f"{scripts[-1]}</script>")
    (data,) = scripts[:-1]
    assert json.loads(data)["things"] == "events"
    assert page.count("<script") == page.count("</script") == 2
    assert page.count("<svg") == page.count("</svg>") == page.count("<figcaption>") == 1
    used = set(re.findall(r"url\(#([^)]+)\)", page))
    assert used
    assert all(f'id="{name}"' in page for name in used)
    assert "&lt;script&gt;" in page
