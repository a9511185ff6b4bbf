"""Rates, utilisation and the printed result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cifar_train import report
from cifar_train.models import training_flops_per_image
from cifar_train.peaks import peak_flops
from cifar_train.train import run


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("AMD Instinct MI300X", "automixed", 1307.4e12),
        ("AMD Instinct MI300X", "float32", 163.4e12),
        ("AMD Instinct MI250X", "bfloat16", 191.5e12),
        ("AMD Instinct MI250X / MI250", "bfloat16", 191.5e12),
        ("AMD Instinct MI210", "automixed", 181.0e12),
        ("AMD EPYC 9654", "float32", None),
        ("NVIDIA H200", "automixed", None),
    ],
)
def test_peaks(name, precision, expected):
    assert peak_flops(name, precision) == expected


def test_resnet_flops_agree_with_the_published_trace_of_this_workload():
    """TraceLens counts 128.119 + 256.238 + 0.944 GFLOP for 3 steps of 256 images.

    It counts an input gradient for the first convolution, which training skips:
    1.23 GFLOP a step, the same as that layer's forward pass.
    """
    published = (128.119e9 + 256.238e9 + 0.944e9) / 3 - 1.23e9
    assert 256 * training_flops_per_image("resnet") == pytest.approx(published, rel=0.005)


def test_mfu_where_the_peak_is_known(quick, monkeypatch):
    monkeypatch.setattr(report, "device_name", lambda device: "AMD Instinct MI300X")
    monkeypatch.setattr(report, "training_flops_per_image", lambda model: 10**9)
    summary = run(quick()).summaries[0]
    assert summary.mfu == pytest.approx(summary.images_per_second * 1e9 / 163.4e12)


def test_no_mfu_where_the_peak_is_unknown(quick):
    summary = run(quick()).summaries[0]
    assert summary.mfu is None
    assert summary.flops_per_second is None


def test_all_ranks_are_added_up():
    summary = report.Summary(
        0, 2, "cpu", "float32", 3, 3, True, 1, 1, 1, 1, None, 100.0, 1, None, None, 1.0, 1.0
    )
    text = report._rates([summary, replace(summary, rank=1, images_per_second=50.0)])
    assert text == "150.0 in all; 75.0 a rank (50.0 to 100.0)"


def test_peak_memory_of_a_cpu_run_is_that_of_the_process(quick):
    import psutil

    result = run(quick())
    (summary,) = result.summaries
    assert f"at most {summary.peak_memory_bytes / 1e6:.0f} MB a rank\n" in result.text
    assert summary.peak_memory_bytes >= 0.9 * psutil.Process().memory_info().rss
