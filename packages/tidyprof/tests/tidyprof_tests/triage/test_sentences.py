"""Every number and every denial in triage's sentences, against the raw file by code that tidyprof
has no part in.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import tidyprof
from tidyprof.diagnosis.verdict import facts, headline
from tidyprof_tests.chrome_writer import TraceEvent, call, kernel, operator, write_trace
from tidyprof_tests.conftest import REPOSITORY, STRANGERS, others_later
from tidyprof_tests.triage import raw_files
from tidyprof_tests.triage.raw import Truth
from tidyprof_tests.triage.sentences import KNOWING, bare, wrong_advice, wrong_in

EXPECTED = tomllib.loads((Path(__file__).parent / "expected.toml").read_text())
NAMES = [
    *(name for name in EXPECTED if EXPECTED[name]["cause"] != "refused"),
    *sorted(str(path.relative_to(REPOSITORY)) for path in STRANGERS.glob("traces*/*")),
]

LARGE = {
    "rocprofv3-json-mi350x-torch-training",
    "torch-mi300-ddp-4ranks-fused/merged_all_events.json.gz",
}
"""A third of the time for all goes into these, and others have sentences of each of their kinds."""


def place_of(name: str, recordings: Path) -> Path:
    return (REPOSITORY if name.startswith("packages/") else recordings) / name


@cache
def lines_of(path: Path) -> list[tuple[str, str]]:
    """Label and sentence of each line of the command, which reads call stacks; without a label it
    has the one above.
    """
    diagnosis = tidyprof.triage(tidyprof.read(path, python_functions=True))
    lines, label = [("headline", headline(diagnosis))], ""
    for own, text in facts(diagnosis):
        label = own or label
        lines.append((label, text))
    return lines


@cache
def truth_of(path: Path) -> Truth:
    return Truth(raw_files.read(path))


def problems(truth: Truth, lines: list[tuple[str, str]]) -> list[str]:
    """What is wrong in the lines of one output."""
    found = []
    for label, text in lines:
        if label in ("next", "not in the files"):
            found += wrong_advice(truth, text)
        if label not in ("next", "origin"):
            found += wrong_in(truth, stated(label, text))
    if truth.rows and truth.again >= 0.011 and not any("run again" in text for _, text in lines):
        found.append(f"forward runs again for {truth.again}, and nobody says so")
    return found


def stated(label: str, text: str) -> str:
    """The claim of a line: without a command, and without the name of the cause or the word for the
    verdict.
    """
    if label in ("takes time, too", "ruled out"):
        return text.partition(": ")[2]
    if label == "headline" and re.match(r"(healthy|can't tell)", text):
        return text.partition(": ")[2]
    return bare(label, text)


@pytest.mark.parametrize("name", others_later(NAMES, {*NAMES} - LARGE))
def test_every_sentence_is_true_of_the_raw_file(name: str, recordings: Path):
    path = place_of(name, recordings)
    found = problems(truth_of(path), lines_of(path))
    assert not found, "\n".join(found)


FIXED = r"\D20 µs|\D1 ms or longer|num_workers=0|takes 20 %|step \d+:|--mark '[^']*'|aten::[\w:.]+"
"""Numbers that are no figures of the run."""

CHANGED = (
    "torch-mi250-minitoy",
    "torch-mi300-ddp-4ranks-fused/merged_all_events.json.gz",
    "torch-mi300x-resnet18-train",
    "torch-mi300x-sglang-decode",
    "torch-mi350x-rocprofiler-sdk",
    "rpd-mi200-matmul/matmul_result.rpd",
    "packages/tidyprof/tests/strangers/traces/many_item",
    "packages/tidyprof/tests/strangers/traces/two_ranks_uneven",
)


@pytest.mark.parametrize("name", others_later(CHANGED, {*CHANGED} - LARGE))
def test_a_number_that_is_off_by_a_tenth_is_found(name: str, recordings: Path):
    """From 2 on: below that a tenth of a share is no more than what it is rounded by."""
    path = place_of(name, recordings)
    tried = 0
    for label, text in lines_of(path):
        claim = stated(label, text)
        fixed = [match.span() for match in re.finditer(FIXED, claim)]
        for match in re.finditer(r"(?<![\w.])\d[\d,]*(\.\d+)?(?=[ %)]|$)", claim):
            value = float(match[0].replace(",", ""))
            if (
                label in ("next", "origin")
                or value < 2
                or any(a <= match.start() < b for a, b in fixed)
            ):
                continue
            places = len(match[0].partition(".")[2])
            off = f"{max(1.1 * value, value + 10**-places):,.{places}f}"
            tried += 1
            assert wrong_in(truth_of(path), claim[: match.start()] + off + claim[match.end() :]), (
                claim,
                match[0],
                off,
            )
    assert tried > 3


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("no steps: whether something comes once or in each step", "torch-mi250-minitoy"),
        ("no calls of the host: why the device was idle", "torch-mi250-minitoy"),
        ("no GPU took part: how one would do", "torch-mi250-minitoy"),
        ("no device events: no steps, no idle time", "torch-mi250-minitoy"),
        (
            "no hardware counters: how near kernels are to their roofs",
            "rocprofv3-csv-gfx1151-llamacpp-decode",
        ),
        (
            "no log of power: whether clocks were held back",
            "smi-mi300x-vllm-llama31-bs1/monitoring",
        ),
        (
            "ranges of the compiler 99 % of the time (events); compiled kernels or ranges: none",
            "packages/tidyprof/tests/strangers/traces/recompile_lengths",
        ),
        (
            "one rank is here, which can't tell waiting for others from transfer (collectives)",
            "packages/tidyprof/tests/strangers/traces/two_ranks_uneven",
        ),
        (
            "calls that allocate or free: 0 a step, device idle in them for 91 %",
            "torch-mi300x-resnet18-train",
        ),
        ("copies to the device: 16 a step (events)", "torch-nvidia-a100-alexnet"),
        (
            (
                "idle in them 0.0 %, most in hipFree, from their end to the next work 0.0 % of the"
                " time"
            ),
            "torch-mi300x-resnet18-train",
        ),
        (
            "nothing takes 20 % of the time or more from computation",
            "packages/tidyprof/tests/strangers/traces/generate_cache",
        ),
        ("no known cause takes 20 % of the time or more", "torch-mi300x-resnet18-train"),
        ("of 10.5 ms between the first and the last device event", "torch-mi300x-sglang-decode"),
        ("9 kernels were never launched", "torch-mi250-minitoy"),
        ("not one collective is hidden", "torch-mi250-minitoy"),
        (
            (
                "of 2 of 3 steps (the first left out), a mean of 18.82 ms each (step_budget):"
                " compute 78 %, between operators 12 %, host silent 7.8 %, data wait 2.2 %"
            ),
            "packages/tidyprof/tests/strangers/traces/many_item",
        ),
        (
            "of 2 of 3 steps (the first left out), a mean of 13.84 ms each",
            "packages/tidyprof/tests/strangers/traces/many_item",
        ),
        (
            (
                "without the profiler about 13.84 ms, 12.85 to 15.58 by what its 18,090 events cost"
                " here, of these"
            ),
            "packages/tidyprof/tests/strangers/traces/many_item",
        ),
        (
            (
                "without the profiler about 13.84 ms, 11.85 to 15.58 by what its 8,090 events cost"
                " here, of these"
            ),
            "packages/tidyprof/tests/strangers/traces/many_item",
        ),
        (
            "without the profiler about 8 ms, 7 to 9 by what its 1,025 events cost here, of these",
            "rpd-mi200-matmul/matmul_result.rpd",
        ),
        (
            (
                "not sure, since the profiler alone may be the difference: healthy or"
                f" many-operators. {KNOWING}"
            ),
            "packages/tidyprof/tests/strangers/traces/many_item",
        ),
        (
            (
                "not sure, since the profiler alone may be the difference: launch-bound or"
                f" slow-host. {KNOWING}"
            ),
            "torch-mi350x-rocprofiler-sdk",
        ),
        (
            f"not sure, since the profiler alone may be the difference. {KNOWING}",
            "packages/tidyprof/tests/strangers/traces/many_item",
        ),
        (
            f"not sure, since the profiler alone may be the difference. {KNOWING}",
            "rpd-mi200-matmul/matmul_result.rpd",
        ),
        (
            f"not sure, since what torch.profiler itself costs the host is not known. {KNOWING}",
            "torch-mi350x-rocprofiler-sdk",
        ),
        (
            f"not sure, since what rocprofv3 itself costs the host is not known. {KNOWING}",
            "rpd-mi200-matmul/matmul_result.rpd",
        ),
        (
            (
                "idle while the host started nothing for 1 ms or longer: 69 % of the time, 26.8 ms"
                " a step (gaps)"
            ),
            "torch-mi300x-timesformer",
        ),
        (
            "most of it in your part `optimizer`",
            "packages/tidyprof/tests/strangers/traces/checkpoint_each_step",
        ),
        (
            "most of it in your part `ProfilerStep#3`",
            "packages/tidyprof/tests/strangers/traces/checkpoint_each_step",
        ),
        (
            "aten::convolution_backward tried out a library's kernels for 47.96 ms (events)",
            "torch-mi300x-resnet18-train",
        ),
        (
            "aten::mm tried out a library's kernels for 479.6 ms (events)",
            "torch-mi300x-resnet18-train",
        ),
        ("copying back to the host 5.3 %", "rpd-mi200-matmul/matmul_result.rpd"),
    ],
)
def test_a_claim_that_is_not_true_is_found(sentence: str, name: str, recordings: Path):
    assert wrong_in(truth_of(place_of(name, recordings)), sentence)


@pytest.mark.parametrize(
    ("advice", "name"),
    [
        (
            "Then more work for each launch: torch.compile",
            "torch-mi300x-compile-triton/trace.json.gz",
        ),
        ("Then more work for each launch: a fused optimizer", "torch-nvidia-a100-alexnet"),
        (
            "rocprof-compute profile --name run -- python infer.py",
            "rpd-mi200-matmul/matmul_result.rpd",
        ),
        ("no steps: call prof.step()", "rocprofv3-lumi-taylor/results.pftrace"),
        ("amd-smi static --limit", "packages/tidyprof/tests/strangers/traces/many_item"),
    ],
)
def test_advice_of_another_trade_is_found(advice: str, name: str, recordings: Path):
    assert [*wrong_advice(truth_of(place_of(name, recordings)), advice)]


def test_the_truth_comes_from_the_raw_files_alone():
    for module in Path(__file__).parent.glob("raw*.py"):
        assert not re.search(r"^\s*(from|import) tidyprof\b", module.read_text(), re.MULTILINE), (
            module
        )


def made_step(number: int) -> list[TraceEvent]:
    """A step of 20 ms with one stretch of each way to be idle that few recordings hold."""
    begin, ids = 20_000_000 * number, iter(range(10 * number, 10 * number + 10))

    def copied(way: str, called: int, took: int, started: int, lasted: int) -> list[TraceEvent]:
        known = {"device": 2, "stream": 0, "correlation": next(ids)}
        return [
            call("hipMemcpyAsync", begin + called, took, known["correlation"]),
            TraceEvent("gpu_memcpy", f"Memcpy {way}", begin + started, lasted, 2, 0, known),
        ]

    def computed(called: int, started: int, lasted: int) -> list[TraceEvent]:
        own = next(ids)
        return [operator("aten::mm", begin + called - 1_000, 20_000, own),
                call("hipLaunchKernel", begin + called, 5_000, own),
                kernel("gemm", begin + started, lasted, own)]  # fmt: skip

    return [
        TraceEvent("user_annotation", f"ProfilerStep#{number}", begin, 20_000_000),
        *computed(100_000, 150_000, 1_850_000),
        TraceEvent("user_annotation", "gloo:all_reduce", begin + 2_000_000, 3_000_000, tid=1001),
        *copied("HtoD", 5_000_000, 1_000_000, 5_100_000, 200_000),  # it returns late
        *copied("DtoH", 6_400_000, 10_000, 6_500_000, 100_000),
        *copied("DtoH", 6_800_000, 10_000, 6_900_000, 100_000),
        *computed(7_500_000, 7_600_000, 400_000),
        operator("aten::item", begin + 8_100_000, 6_800_000, next(ids)),  # it makes no call
        *computed(15_000_000, 15_100_000, 4_800_000),
    ]


def test_each_way_to_be_idle_has_its_part(tmp_path: Path):
    path = write_trace(
        tmp_path / "trace.json", [event for step in (1, 2, 3) for event in made_step(step)]
    )
    truth = truth_of(path)
    assert not problems(truth, lines_of(path))
    # Behind the late copy 0.4 ms to the launch and 0.1 to its copy, between copies 0.3, of 20.
    assert truth.share("stalled") == pytest.approx(0.8 / 20)
    assert truth.share("exposed_communication") == pytest.approx(3 / 20)
    assert truth.share("silent") == pytest.approx(6.999 / 20)


LATER = {
    "torch-mi300x-sglang-decode": True,
    "torch-mi300x-sglang-prefilldecode": True,
    "torch-mi300x-vllm-decode-hipgraph/graph_execution.json.gz": False,
    "torch-mi300x-vllm-piecewise": False,
}
"""Recording -> whether its longest gap is work that the file lacks: what ends it was launched a
while before.
"""

CALLED = {"launched late": "launch_bound", "queued": "other", "earlier work": "other"}
"""What `gaps` calls an idle interval, and the part of `step_budget` that it is in."""


@pytest.mark.parametrize("name", LATER)
def test_an_idle_interval_has_one_name_everywhere(name: str, recordings: Path):
    path = place_of(name, recordings)
    (begin, end), waited, launched_late = longest_gap(truth_of(path))
    assert (waited > 0.99 * (end - begin) > 1e6) == LATER[name]
    profile = tidyprof.read(path)
    gap = tidyprof.gaps(profile, minimum_ns=0).iloc[0]
    assert gap["duration_ns"] == end - begin
    expected = "earlier work" if LATER[name] else "launched late" if launched_late else "queued"
    assert gap["cause"] == expected
    (budget,) = tidyprof.step_budget(profile).to_dict("records")
    # Up to the end of its launch, some microseconds, there was nothing to do.
    assert budget[f"{CALLED[expected]}_ns"] >= (waited if LATER[name] else end - begin)
    if LATER[name]:
        assert budget["launch_bound_ns"] + budget["blocked_host_ns"] < 0.2 * (end - begin)
    said = [text for _, text in lines_of(path) if "earlier work" in text]
    assert bool(said) == LATER[name]
    assert all(f"{waited / 1e6:.4g} ms" in text for text in said)


def longest_gap(truth: Truth) -> tuple[tuple[int, int], int, bool]:
    """The longest stretch between two events on the device, how long what ends it was launched
    before it ran, and whether that was launched within the stretch.
    """
    (side,) = truth.sides
    events, reach, found = side.work.events, side.work.events[0].end, (0, 0, None)
    for event, launch in zip(events, side.work.calls, strict=True):
        if event.start - reach > found[1] - found[0]:
            found = (reach, event.start, launch)
        reach = max(reach, event.end)
    begin, end, launch = found
    return (begin, end), end - launch.end, launch.start >= begin
