"""Devices as data."""

from __future__ import annotations

import pytest

from cifar_train.peaks import peak_flops
from gpumodel.devices import device, names
from tidyprof.analyses.gpu_peaks import ARCHITECTURES, MODELS
from tidyprof.errors import UserError

AMD = [name for name in names() if device(name).gfx]


def test_every_file_is_a_device_with_its_own_name_and_a_source():
    for name in names():
        assert device(name).name == name
        assert "http" in device(name).source


def test_the_devices_that_the_course_speaks_of_are_there():
    assert {"MI300X", "MI250X", "MI300A", "MI355X", "H100", "H200"} <= set(names())


@pytest.mark.parametrize("name", AMD)
def test_matrix_peaks_are_rate_per_unit_times_units_times_clock(name):
    # Rates per compute unit and clock from AMD's architecture pages, e.g. 2048 * 304 * 2.1 GHz =
    # 1307.4 TFLOP/s.
    rate = {"gfx90a": 1024, "gfx942": 2048, "gfx950": 4096}[device(name).gfx]
    expected = rate * device(name).compute_units * device(name).clock_mhz * 1e6
    assert device(name).peak_flops["matrix float16"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", AMD)
def test_peaks_agree_with_those_that_the_trainer_divides_by(name):
    for precision, key in (
        ("automixed", "matrix float16"),
        ("bfloat16", "matrix bfloat16"),
        ("float32", "matrix float32"),
    ):
        assert peak_flops(name, precision) == pytest.approx(device(name).peak_flops[key], rel=1e-3)


@pytest.mark.parametrize(
    "model", [model for model in MODELS if model.name in names()], ids=lambda model: model.name
)
def test_peaks_agree_with_those_that_the_analyses_divide_by(model):
    one, rates = device(model.name), ARCHITECTURES[model.architecture].matrix
    assert (one.compute_units, one.clock_mhz, one.gfx) == (
        model.compute_units,
        model.clock_mhz,
        model.architecture,
    )
    assert one.memory_bandwidth == pytest.approx(model.memory_gb_per_second * 1e9, rel=1e-3)
    for key, name in (
        ("matrix float16", "fp16"),
        ("matrix bfloat16", "bf16"),
        ("matrix float32", "fp32"),
    ):
        expected = rates[name] * model.compute_units * model.clock_mhz * 1e6
        assert one.peak_flops[key] == pytest.approx(expected, rel=1e-3)


def test_names_may_be_written_in_any_case_of_letters():
    assert device("mi300x") is not None
    assert device("mi300x").name == "MI300X"


def test_an_unknown_device_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"MI999.*MI300X"):
        device("MI999")
