"""The type of the matrix products: by names of kernels and by inputs of operators, and the note."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidyprof
from tidyprof.triage.precision import precision_note
from tidyprof_tests.chrome_writer import HEADER
from tidyprof_tests.triage import gpu_programs
from tidyprof_tests.triage.traces import CUDA, WITHOUT_A_GPU, Step, triaged

TENSILE = "Cijk_Ailk_Bljk_{}_MT128x64x16_SN"
OTHER_GPU = HEADER | {"deviceProperties": [{"id": 0, "name": "AMD Radeon RX 6800"}]}


def notes(found: tidyprof.Diagnosis) -> list[str]:
    return [note for note in found.notes if note.startswith("float")]


def fill(kernel: str, input_type: str = "", operator: str = "aten::mm"):
    """Return what fills a step: an operator with inputs of this type that launches a kernel."""

    def step(step: Step) -> None:
        step.operator(operator, 1, 5)
        product = step.events[-1].arguments
        product["Input type"] = [input_type, input_type]
        step.launch(2, 5, kernel)
        for event in step.events[-2:]:
            event.arguments["External id"] = product["External id"]
        step.launch(8, 1, "elementwise_kernel")

    return step


@pytest.mark.parametrize(
    ("kernel", "input_type", "header", "noted"),
    [
        (TENSILE.format("DB"), "", HEADER, "float64"),
        (TENSILE.format("SB"), "", HEADER, "float32"),
        (TENSILE.format("SB"), "", OTHER_GPU, ""),
        (TENSILE.format("S_MX_B"), "float", HEADER, ""),
        (TENSILE.format("HHS_BH"), "", HEADER, ""),
        ("gemm", "float", HEADER, "float32"),
        ("gemm", "double", OTHER_GPU, "float64"),
        ("gemm", "c10::BFloat16", HEADER, ""),
        ("gemm", "", HEADER, ""),
        ("ampere_sgemm_128x64_nn", "", CUDA, "float32"),
        ("cutlass_80_tensorop_s1688gemm_128x64_nn", "float", CUDA, ""),
        ("void implicit_conv_kernel(int)", "float", CUDA, ""),
        ("elementwise_kernel", "double", HEADER, ""),
    ],
)
def test_a_gpu(tmp_path: Path, kernel: str, input_type: str, header: dict, noted: str):
    found = notes(triaged(tmp_path, 10, fill(kernel, input_type), header))
    assert [note.split(":")[0] for note in found] == [noted] * bool(noted)


def test_products_that_hardly_matter(tmp_path: Path):
    def step(step: Step) -> None:
        step.launch(1, 0.5, TENSILE.format("DB"))
        step.launch(2, 7, "elementwise_kernel")

    assert not notes(triaged(tmp_path, 10, step))


def test_half_of_the_products(tmp_path: Path):
    def step(step: Step) -> None:
        step.launch(1, 3, TENSILE.format("DB"))
        step.launch(5, 3, TENSILE.format("HHS_BH"))

    assert not notes(triaged(tmp_path, 10, step))


def test_inputs_of_two_types_leave_it_open(tmp_path: Path):
    def step(step: Step) -> None:
        fill("gemm", "double" if step.number else "c10::Half")(step)

    assert not notes(triaged(tmp_path, 10, step, HEADER))


@pytest.mark.parametrize(("input_type", "count"), [("double", 1), ("float", 0), ("", 0)])
def test_a_cpu(tmp_path: Path, input_type: str, count: int):
    def step(step: Step) -> None:
        step.operator("aten::linear", 1, 7)
        step.operator("aten::addmm", 2, 5)
        step.events[-1].arguments["Input type"] = [input_type] * 3

    assert len(notes(triaged(tmp_path, 10, step, WITHOUT_A_GPU))) == count


def test_real_runs():
    """Two programs on an H200: one with products in float32, one in bfloat16."""
    assert notes(gpu_programs.triaged("churn_transformer", "sick", "given"))
    assert not notes(gpu_programs.triaged("bird_spectrograms", "cured", "given"))


def test_the_note_of_other_shares():
    assert precision_note({"float64": 1.0}, "", "model's parameters")
    assert precision_note({"float32": 0.6, "bfloat16": 0.4}, "NVIDIA H200")
    assert not precision_note({"float32": 0.4, "bfloat16": 0.6}, "NVIDIA H200")
    assert not precision_note({}, "AMD Instinct MI300X")


@pytest.mark.parametrize(
    ("gpu", "fast"),
    [
        *((name, True) for name in ("AMD Instinct MI100", "AMD Instinct MI300X VF", "gfx90a")),
        *((name, True) for name in ("Tesla V100-SXM2-32GB", "Tesla T4", "NVIDIA GeForce RTX 4090")),
        *((name, True) for name in ("NVIDIA A100-PG509-200", "NVIDIA L40S", "NVIDIA GB200")),
        *((name, False) for name in ("AMD Instinct MI60", "AMD Radeon Graphics", "gfx906")),
        *((name, False) for name in ("Tesla P100-PCIE", "NVIDIA GeForce GTX 1080", "")),
    ],
)
def test_gpus_that_are_faster_in_16_bits(gpu: str, fast: bool):
    assert bool(precision_note({"float32": 1.0}, gpu)) == fast
