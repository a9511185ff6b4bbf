"""Reports of the Debug Agent, read; the fault that the course constructs; the exercises of lesson 09; its pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from proflab.errors import CourseError
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts import published_faults
from proflab.parts.constructed_fault import GUILTY, ConstructedFault, instruction_addresses, listing
from proflab.parts.fault_charts import index_reach, lanes_figure, reach_figure
from proflab.parts.fault_report import FaultReport, around, parse_fault_report, read_fault_report, read_listing
from proflab.parts.kernel_operators import kernel_operators
from proflab.recordings import recording
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

lesson = exercises_of("09")

RECENT = """\
Memory access fault by GPU node-4 (Agent handle: 0x1) on address 0x7ffb61f02000. Reason: Unknown.
wave_249: pc=0x7f00000010fc (kernel_code_entry=0x7f0000001000 <void f<int>::{lambda(int)#1}>(long), x<4> >(long)>, \
kernargs=0x7ffb61f00000) (stopped, reason: MEMORY_VIOLATION|FP_OVERFLOW)

general registers:
            m0: 000103c0
            pc: 00007f00000010fc          exec: f800000000000000
           vcc: ffffffffffffffff
Local memory content:
    0x0000: 22222222 11111111
Disassembly for function void f<int>::{lambda(int)#1}>(long), x<4> >(long):
    code object: memory://4711#offset=0x546c3060&size=4026672
    loaded at: [0x7f0000000000-0x7f000035ff09]
 => 0x7f00000010fc <+252>:    s_endpgm
    0x7f0000001100 <+256>:    v_cndmask_b32_e32 v0, s0, v0, vcc
End of disassembly.
wave_250: pc=0x7f0000001000 (running)
"""
"""The layout of 2026 in small: the kernel's name, full of brackets, between the program counter and the reason."""


@pytest.fixture(scope="module")
def fault() -> ConstructedFault:
    return ConstructedFault()


@pytest.fixture(scope="module")
def report(fault: ConstructedFault) -> FaultReport:
    return fault.report()


@pytest.fixture(scope="module")
def code() -> dict[int, str]:
    return read_listing(listing())


@pytest.fixture(scope="module")
def trace() -> Profile:
    """Kernels around a loss, as torch.profiler connects them with operators; one kernel was launched before."""
    launched = (
        ("void softmax_warp_forward<float>(float*)", "aten::_log_softmax"),
        ("void nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)", "aten::nll_loss_forward"),
        ("void nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)", "aten::nll_loss_forward"),
        ("void nll_loss_backward_reduce_cuda_kernel_2d<float>(float*)", "aten::nll_loss_backward"),
        ("void nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)", None),
    )
    rows = [
        {"rank": 0, "kind": "kernel", "name": name, "short_name": name[5:22], "start_ns": place, "duration_ns": 1}
        | {"operator": operator}
        for place, (name, operator) in enumerate(launched)
    ]
    events = pd.DataFrame(rows, columns=[*EVENT_DTYPES, "operator"]).astype({**EVENT_DTYPES, "operator": "category"})
    return Profile(events, meta={"origin": Origin("modelled", "by hand")})


def with_labels(labels: list[int]) -> FaultReport:
    """The report of one wave that reads these 64-bit labels."""
    made = ConstructedFault()
    wave = made.report().waves[0]
    addresses = [made.logits_at + 4 * (100 * lane + label) for lane, label in enumerate(labels)]
    vectors = {"v2": [address & 0xFFFFFFFF for address in addresses], "v3": [address >> 32 for address in addresses]}
    return FaultReport("", addresses[0] // 4096 * 4096, (replace(wave, vectors=vectors),))


# Reading a report


def test_the_recent_layout_is_read() -> None:
    found = parse_fault_report(RECENT)
    first, second = found.waves
    assert (first.number, first.pc, first.kernel_entry) == (249, 0x7F00000010FC, 0x7F0000001000)
    assert first.kernel == "void f<int>::{lambda(int)#1}>(long), x<4> >(long)"
    assert first.reasons == ("MEMORY_VIOLATION", "FP_OVERFLOW")
    assert first.active_lanes() == [59, 60, 61, 62, 63]
    assert first.scalars == {"m0": 0x103C0, "pc": first.pc, "exec": 0xF8 << 56, "vcc": 2**64 - 1}
    assert (second.pc, second.reasons, second.kernel, second.code) == (0x7F0000001000, (), "", None)
    assert found.table()["reason"].tolist() == ["MEMORY_VIOLATION and FP_OVERFLOW", "running"]
    assert found.table()["active_lanes"].isna().tolist() == [False, True]


def test_the_program_counter_is_translated_into_the_listing() -> None:
    wave = parse_fault_report(RECENT).waves[0]
    assert wave.code.function == wave.kernel
    assert wave.code.code_object == "memory://4711#offset=0x546c3060&size=4026672"
    assert wave.code.instructions == {
        0x7F00000010FC: "s_endpgm",
        0x7F0000001100: "v_cndmask_b32_e32 v0, s0, v0, vcc",
    }
    assert wave.listing_pc == 0x10FC


def test_the_published_report_is_read() -> None:
    found = published_faults.assert_trap()
    wave = found.waves[0]
    assert found.event.startswith("Queue error (HSA_STATUS_ERROR_EXCEPTION")
    assert found.faulting_page is None
    assert (wave.reasons, wave.active_lanes()) == (("ASSERT_TRAP",), [0])
    assert wave.scalars["s3"] == 0x00EA4FAC
    assert wave.vectors["v0"][1] == 0xF1002004
    assert wave.code.instructions[wave.pc] == "s_trap 2"
    assert (wave.listing_pc, wave.scalar_pair(0)) == (0x10E8, 0x7FD5F520C000)


def test_the_event_and_the_first_page_are_read() -> None:
    event = "System event (HSA_AMD_GPU_MEMORY_FAULT_EVENT: page not present or supervisor privilege)"
    found = parse_fault_report(f"{event}\nFaulting page: 0x7fbe4cc01000\nwave_0: pc=0x10 (running)\n")
    assert (found.event, found.faulting_page) == (event, 0x7FBE4CC01000)


@pytest.mark.parametrize("text", ["", "Memory access fault by GPU node-1 on address 0x1. Reason: Unknown.\nAborted\n"])
def test_a_log_without_waves_says_what_to_do(text: str) -> None:
    with pytest.raises(CourseError, match="load the agent at the start"):
        parse_fault_report(text)


def test_a_file_that_is_missing_or_holds_no_report_is_named(tmp_path) -> None:
    with pytest.raises(CourseError, match=r"agent\.txt: No such file.*only after a fault"):
        read_fault_report(tmp_path / "agent.txt")
    (tmp_path / "log.txt").write_text("step 1 of 1\n")
    with pytest.raises(CourseError, match=r"log\.txt: no wave in it"):
        read_fault_report(tmp_path / "log.txt")
    (tmp_path / "rank0.txt").write_bytes(RECENT.encode() + b"\xff\n")
    assert len(read_fault_report(tmp_path / "rank0.txt").waves) == 2


def test_what_was_not_printed_is_no_guess() -> None:
    wave = parse_fault_report(RECENT).waves[1]
    for ask in (wave.active_lanes, lambda: wave.scalar_pair(2), lambda: wave.vector_pair(2), lambda: wave.listing_pc):
        with pytest.raises(CourseError, match="wave 250"):
            ask()


def test_a_listing_is_read_and_shown_around_an_address(code: dict[int, str]) -> None:
    assert around(code, 0x1954, before=1, after=1).splitlines() == [
        "   0x194c  v_lshl_add_u64 v[2:3], v[2:3], 2, s[2:3]",
        "=> 0x1954  global_load_dword v2, v[2:3], off",
        "   0x195c  v_lshl_add_u64 v[0:1], v[0:1], 2, s[0:1]",
    ]
    with pytest.raises(CourseError, match="no instruction begins at 0x1950: the listing covers 0x1900 to 0x1978"):
        around(code, 0x1950)
    with pytest.raises(CourseError, match="no instruction in the listing"):
        read_listing("memory: file format elf64-amdgpu\n")


# The constructed fault


def test_the_constructed_report_follows_from_its_inputs(fault: ConstructedFault, report: FaultReport) -> None:
    assert report.faulting_page == fault.culprit[2]
    assert str(report.origin).startswith("modelled: constructed")
    for place, wave in enumerate(report.waves):
        assert wave.vector_pair(2) == fault.addresses(place)
        assert (wave.scalar_pair(2), wave.scalar_pair(0)) == (fault.logits_at, fault.picked_at)
        assert wave.code.instructions[wave.pc] == "s_waitcnt vmcnt(0)"
        assert wave.vector_pair(0) == [fault.picked_at + 4 * (64 * place + lane) for lane in range(64)]


def test_machine_code_has_the_length_of_its_words() -> None:
    # 19 instructions of 31 words in all: LLVM gave the function a size of 124 bytes.
    places = instruction_addresses()
    assert (len(places), places[0], places[-1] + 4 - places[0]) == (19, 0x1900, 124)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_labels_give_a_report_that_leads_back_to_them(seed: int) -> None:
    made = ConstructedFault(seed=seed)
    found = made.report()
    wave, lane, _ = made.culprit
    assert lesson.labels_used(found) == made.misread.tolist()
    assert lesson.reported_image(found) == 64 * wave + lane
    assert lesson.cause(found) == lesson.WRONG_TYPE
    assert max(max(wave.vector_pair(2)) for wave in found.waves) < 2**47


# The exercises


def test_every_exercise_works(report: FaultReport, code: dict, trace: Profile) -> None:
    old = published_faults.memory_fault()
    data = {
        "09.1": old,
        "09.2": trace,
        "09.3": (report, code),
        "09.4": report,
        "09.5": report,
        "09.6": None,
    }
    assert list(data) == [exercise.id for exercise in lesson.EXERCISES]
    for number, given_data in data.items():
        selftest(number, given_data)


def test_the_operator_is_found_in_the_trace_that_the_lesson_shows() -> None:
    there = recording("modelled-resnet")
    shown = tidyprof.read(there.files["torch/trace_rank0_of_1.json.gz"], origin=there.origin)
    selftest("09.2", shown)
    assert lesson.operator_of(shown) == "nll_loss_forward"


def test_the_old_fault_explains_itself() -> None:
    old = published_faults.memory_fault()
    # 0x17D78400 bytes are 400,000,000; added to the array's begin they give the address in v2.
    assert lesson.written_index(old) == 100_000_000
    assert old.scalars["s10"] < old.lane_0["v2"] == 0x18DB4400
    assert old.source_line == "d[100000000] = ga[gid & 31];"
    assert "100000000" not in old.text


def test_the_guilty_instruction_is_found(report: FaultReport, code: dict[int, str]) -> None:
    assert lesson.memory_accesses(code) == {0x1928: 2, 0x1954: 2, 0x1970: 0}
    assert code[lesson.guilty_instruction((report, code))] == GUILTY
    with pytest.raises(ValueError, match="no access before"):
        lesson.guilty_instruction((report, {0x1900: "s_endpgm"}))


@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        ([3, 100, 7], lesson.ONE_LABEL),
        ([3, -1, -100], lesson.NEGATIVE),
        ([3 << 32 | 8, 99 << 32 | 99, 5], lesson.WRONG_TYPE),
        ([3 << 32 | 8, 0x3F5A1C20_11223344, 5], lesson.NEVER_FILLED),
        ([7, -9, 4_000], lesson.NEVER_FILLED),
    ],
)
def test_causes_are_told_apart(labels: list[int], cause: str) -> None:
    found = with_labels(labels)
    assert lesson.labels_used(found) == labels
    assert lesson.cause(found) == cause


def test_labels_in_range_have_no_cause() -> None:
    result = find("09.5").on(with_labels([1, 2, 3])).evaluate(lesson.ONE_LABEL)
    assert result.outcome is Outcome.NOT_ATTEMPTED
    assert "all labels are in range" in result.message


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        (lambda labels, classes: lesson.guard([*labels, -5], classes), "It stops good labels"),
        (lambda labels, classes: None, "It lets the label 100"),
        (lambda labels, classes: lesson.guard(np.maximum(labels, 0), classes), "It lets a negative label pass"),
        (lambda labels: None, "The check can't work with this answer: TypeError"),
        (lambda labels, classes: [range(classes)[label] for label in labels], "IndexError; ValueError is asked"),
    ],
)
def test_a_guard_is_told_what_it_misses(guard, words: str) -> None:
    result = find("09.6").on(None).evaluate(guard)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_operators_are_found_by_the_kernel(trace: Profile) -> None:
    table = kernel_operators(trace, "NLL_LOSS", "softmax")
    assert table["calls"].tolist() == [2, 1, 1]
    assert table["operator"].tolist() == ["aten::nll_loss_forward", "aten::nll_loss_backward", "aten::_log_softmax"]
    assert len(kernel_operators(trace)) == 3
    assert kernel_operators(trace, "gemm").empty
    without = Profile(trace.events.assign(operator=None), meta=trace.meta)
    with pytest.raises(ValueError, match="record CPU activity too"):
        kernel_operators(without)
    with pytest.raises(ValueError, match=r"take a trace of torch\.profiler"):
        kernel_operators(Profile(trace.events.drop(columns="operator"), meta=trace.meta))


# The pictures and the numbers beside them


@pytest.mark.parametrize(
    ("size", "cached", "plain"),
    [
        (1, 2 * 2**20, 4096),
        (102_400, 2 * 2**20, 102_400),
        (2**20 + 1, 20 * 2**20, 2**20 + 4096),
        (10 * 2**20 + 4, 12 * 2**20, 10 * 2**20 + 4096),
    ],
)
def test_memory_behind_a_tensor(size: int, cached: int, plain: int) -> None:
    table = index_reach(size)
    assert table["mapped_bytes"].tolist() == [cached, plain]
    assert table["silent_bytes"].tolist() == [cached - size, plain - size]
    assert table["first_fault"].tolist() == [cached // 4, plain // 4]
    assert table.attrs["origin"].endswith("the tensor begins its block")


def test_an_empty_tensor_has_no_elements() -> None:
    with pytest.raises(ValueError, match="0 bytes"):
        index_reach(0)


def test_pictures_say_in_words_what_they_show(report: FaultReport) -> None:
    reach = reach_figure(index_reach(102_400))
    assert "1.90 MiB behind it" in reach.alternative_text
    assert "without the cache 0.00 MiB" in reach.alternative_text
    base = report.waves[0].scalar_pair(2)
    lanes = lanes_figure(report, base, 2)
    far = sum(address - base > 192e9 for wave in report.waves for address in wave.vector_pair(2))
    assert f"128 points, one for each lane, by their distance from the tensor: {far} " in lanes.alternative_text
    assert "1 of them looked at the faulting page" in lanes.alternative_text
    assert lanes.origin.startswith("modelled")


def test_a_full_gpu_makes_a_long_report() -> None:
    # 304 compute units of 32 waves, 14,635 lines for 125 waves.
    assert published_faults.lines_of_a_full_gpu() == pytest.approx(304 * 32 * 117.08)
