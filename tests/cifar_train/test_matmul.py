"""The two-matrix workload."""

from __future__ import annotations

import json

import pytest

from cifar_train.matmul import check_shapes, main, multiply
from tidyprof.errors import UserError


def test_product_is_right_and_counted():
    result = multiply([6, 4], [4, 3], repeat=2, device_name="cpu")
    import torch

    generator = torch.Generator().manual_seed(0)
    x, w = torch.rand(6, 4, generator=generator), torch.rand(4, 3, generator=generator)
    assert result["checksum"] == pytest.approx((x @ w).double().mean().item())
    assert result["flops"] == 2 * 6 * 4 * 3
    assert len(result["durations_ns"]) == 2
    assert min(result["durations_ns"]) > 0


def test_command_line(capsys):
    assert main(["--x-shape", "8", "4", "--w-shape", "4", "2", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["x_shape"] == [8, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--x-shape", "3", "4", "--w-shape", "5", "6"], ["4 columns", "5 rows"]),
        (["--x-shape", "0", "4", "--w-shape", "4", "6"], ["--x-shape", "between 1"]),
        (
            ["--x-shape", "4", "1" + 400 * "0", "--w-shape", "4", "6"],
            ["--x-shape", "between 1", "000..."],
        ),
        (["--x-shape", "3"], ["--x-shape"]),
        (["--device", "tpu"], ["--device"]),
    ],
)
def test_refusals(arguments, words, capsys):
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert len(message.strip().splitlines()) == 1
    for word in words:
        assert word in message


def test_too_large_for_memory_is_refused_with_numbers():
    with pytest.raises(UserError, match="GB are free"):
        check_shapes([10**7, 10**6], [10**6, 10], repeat=1)
