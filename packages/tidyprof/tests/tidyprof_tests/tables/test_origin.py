"""Files that a model wrote say so, and whoever reads them learns it."""

from __future__ import annotations

import json

import pytest

import tidyprof
from tidyprof import Origin, plots
from tidyprof.tables.contract import NOT_STATED, origin_of_files, stated_origin
from tidyprof_tests.chrome_writer import small_step, trace_text

MARKER = {"by": "gpumodel", "device": "MI300X", "error": "kernel times within 25 %"}
MODELED = Origin("modeled", "MI300X, kernel times within 25 %")


@pytest.mark.parametrize("marker", [MARKER, json.dumps(MARKER)], ids=["object", "text"])
def test_a_marker_states_device_and_error(marker):
    assert stated_origin(marker) == MODELED


def test_a_marker_without_an_error_says_that_it_is_not_known():
    assert stated_origin({"error": ""}) == Origin("modeled", "error not known")


@pytest.mark.parametrize("marker", [None, 3, [], "no JSON", "[" * 100_000, '"text"'])
def test_what_is_no_marker(marker):
    assert stated_origin(marker) is None


def test_a_long_or_odd_text_becomes_one_short_line():
    origin = stated_origin({"error": "a\nb\t" + "c" * 10_000})
    assert "\n" not in origin.detail
    assert len(origin.detail) <= 300


def test_a_file_beside_the_recording_speaks_for_it(tmp_path):
    assert origin_of_files([str(tmp_path / "a.csv")]) == NOT_STATED
    (tmp_path / "out_modelled.json").write_text("{broken")
    assert origin_of_files([str(tmp_path / "a.csv")]) == NOT_STATED
    (tmp_path / "modelled.json").write_text(json.dumps({"modelled": MARKER}))
    assert origin_of_files([str(tmp_path / "a.csv")]) == MODELED


def test_a_mark_with_a_start_of_names_speaks_for_these_only(tmp_path):
    (tmp_path / "run_modelled.json").write_text(json.dumps({"modelled": MARKER}))
    assert origin_of_files([str(tmp_path / "run_kernel_trace.csv")]) == MODELED
    assert origin_of_files([str(tmp_path / "measured.csv")]) == NOT_STATED


def test_the_mark_of_a_trace_reaches_the_corner_of_a_figure(tmp_path):
    trace = json.loads(trace_text(small_step())) | {"modelled": MARKER}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    profile = tidyprof.read(path)
    assert profile.origin == MODELED
    figure = plots.top_kernels(tidyprof.kernels(profile))
    assert str(MODELED) in [
        text.get_text().replace("\N{NO-BREAK SPACE}", " ") for text in figure.texts
    ]
