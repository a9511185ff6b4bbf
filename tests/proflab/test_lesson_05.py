"""The exercises of lesson 05 on hand counts, on what the stand-in writes and on recordings; the lesson's modules."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts import published_speed_of_light as published
from proflab.parts.instruction_mix import KINDS, instructions_per_wave, mix_table
from proflab.parts.memory_traffic import LEVELS, memory_traffic, traffic_figure
from proflab.parts.roofline_by_hand import RATES, Convolution, knees, knees_figure, published_layers, roof, roofs_above
from proflab.parts.steady_part import own_run
from proflab.standins.__main__ import main as stand_in
from tidyprof.tables.contract import Profile

lesson = exercises_of("05")

LAYER = Convolution(images=256, channels=256, filters=256, size=2, filter_width=3)
PAIR = "rocprof-compute-mi300x-coalescing"


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `workloads` that the commands of the lesson write."""
    patch = pytest.MonkeyPatch()
    patch.chdir(tmp_path_factory.mktemp("compute"))
    common = "profile --no-roof -b 2 10 --format-rocprof-output csv"
    program = ["--", "python", "-m", "cifar_train", "--max-steps", "2"]
    try:
        assert stand_in(["rocprof-compute", *common.split(), "--name", "all", *program]) == 0
        two = ["--name", "two", "-k", "igemm", "BatchNorm"]
        assert stand_in(["rocprof-compute", *common.split(), *two, *program]) == 0
        yield Path.cwd() / "workloads"
    finally:
        patch.undo()


@pytest.fixture(scope="module")
def mine(workloads: Path) -> Profile:
    return own_run(workloads / "all")


@pytest.fixture(scope="module")
def pair(recordings: Path) -> list[Profile]:
    return [tidyprof.read(recordings / PAIR / f"{kind}_profile") for kind in ("coalesced", "uncoalesced")]


def test_every_exercise_is_tested_here() -> None:
    assert [exercise.id for exercise in lesson.EXERCISES] == ["05.1", "05.2", "05.3", "05.4", "05.5", "05.6"]


def test_exercises_on_hand_counts_and_published_tables() -> None:
    selftest("05.1", LAYER)
    selftest("05.2", published_layers())
    table = published.published_speed_of_light()
    selftest("05.4", table)


def test_exercises_on_what_the_stand_in_writes(mine: Profile) -> None:
    selftest("05.3", mine)
    selftest("05.6", mine)


def test_the_comparison_on_the_recordings(pair: list[Profile]) -> None:
    selftest("05.5", pair)


@pytest.mark.parametrize("number", [exercise.id for exercise in lesson.EXERCISES])
def test_without_data_nothing_is_judged(number: str) -> None:
    assert find(number).on(None).evaluate(1).outcome is Outcome.NOT_ATTEMPTED


def test_a_convolution_counted_by_hand() -> None:
    # 4 outputs of 3 channels; each needs 2 channels x 9 weights, a multiplication and an addition: 4 x 3 x 18 x 2.
    small = Convolution(images=1, channels=2, filters=3, size=4, filter_width=3, stride=2)
    assert small.output_size == 2
    assert small.flops == 432
    # 32 numbers in, 54 weights, 12 out, 2 bytes each.
    assert small.bytes == 196
    assert small.intensity == pytest.approx(432 / 196)
    assert Convolution(1, 1, 1, 5, 1, 2).output_size == 3


def test_the_layer_of_the_lesson_has_the_published_intensity() -> None:
    # AMD prints 1.21 GFLOP, 2.13 MiB and 542.1 FLOP per byte for it.
    assert LAYER.flops == 1_207_959_552
    assert LAYER.bytes / 2**20 == pytest.approx(2.125)
    assert LAYER.intensity == pytest.approx(542.1, abs=0.05)


def test_intensities_and_shares_agree_with_the_published_ones() -> None:
    # Columns FLOPS/Byte and Pct Roofline of AMD's workbook; its shares are means over calls, hence the tolerance.
    intensities = [51.0, 51.0, 99.9, 146.3, 542.1, 170.7, 542.1, 31.9, 230.4, 123.6]
    shares = [0.72, 0.69, 0.69, 0.48, 3.79, 0.49, 5.60, 8.57, 8.85, 4.03]
    layers = published_layers()
    assert layers["intensity"].tolist() == pytest.approx(intensities, abs=0.06)
    assert layers["percent"].tolist() == pytest.approx(shares, rel=0.05)


def test_knees_are_where_the_roofs_meet() -> None:
    assert knees()["knee"].tolist() == pytest.approx([1307.4 / 5.3, 654 / 5.3])
    for rate in RATES.values():
        assert roof(rate / 5.3e12, rate) == pytest.approx(rate)
        assert roof(1, rate) == pytest.approx(5.3e12)
        assert roof(1e4, rate) == rate
    # 123.6, 146.3, 170.7 and 230.4 lie between 123.4 and 246.7.
    assert lesson.between_knees(published_layers()) == 4


def test_roofs_above_a_kernel() -> None:
    ceilings = pd.DataFrame({"name": ["HBM", "matrix fp16"], "value": [5e12, 1e15]})
    kernel = pd.Series({"main_type": "matrix fp16", "hbm_intensity": 10.0})
    assert roofs_above(kernel, ceilings) == (1e15, 5e13)
    kernel["main_type"] = "vector fp16"
    assert roofs_above(kernel, ceilings) == (math.inf, 5e13)


def test_the_figures_say_in_words_what_they_show(pair: list[Profile]) -> None:
    text = knees_figure(published_layers()).alternative_text
    assert "10 layers" in text
    assert "123 and 247" in text
    traffic = memory_traffic({"coalesced": pair[0], "uncoalesced": pair[1]})
    figure = traffic_figure(traffic, 8 * 65_536)
    assert "32 times what the work needs" in figure.alternative_text
    assert str(pair[0].origin) in figure.origin


def test_the_published_table_is_that_of_an_mi300a_with_doubled_peaks() -> None:
    table = published.published_speed_of_light()
    # 61286.4 = 128 x 228 x 2100 / 1000, and the true F16 peak 2048 x 228 x 2100 / 1000 is half of the printed one.
    assert published.compute_units(table) == pytest.approx(228)
    assert published.true_peak(table) == pytest.approx(980_582.4)
    printed = table.set_index("metric").loc["MFMA FLOPs (F16)"]
    assert printed["peak"] == pytest.approx(2 * 980_582.4)
    assert printed["pct_of_peak"] == pytest.approx(100 * printed["value"] / printed["peak"], abs=0.005)
    assert lesson.true_share(table) == pytest.approx(0.44, abs=0.005)


def test_the_instruction_mix_is_the_tools_own(recordings: Path, pair: list[Profile]) -> None:
    for profile in (*pair, tidyprof.read(recordings / "rocprof-compute-mi308x-montecarlo")):
        rows = profile.meta["metric_tables"]["10.1 Overall Instruction Mix"]
        tools = {row["Metric"]: row["Avg"] for row in rows}
        found = instructions_per_wave(profile)
        assert {kind: found[kind] for kind in KINDS} == pytest.approx({kind: tools[kind] for kind in KINDS}, abs=0.006)


def test_instructions_that_the_model_does_not_know_are_missing(mine: Profile) -> None:
    found = instructions_per_wave(mine, kernel="igemm")
    assert pd.isna(found["LDS"])
    assert found["MFMA"] > 0
    table = mix_table({"a": found, "b": published.INSTRUCTIONS_PER_WAVE}, origin="test")
    assert table.columns.tolist() == ["kind", "meaning", "a", "b"]
    with pytest.raises(ValueError, match="nothing_like_this"):
        instructions_per_wave(mine, kernel="nothing_like_this")


def test_memory_traffic_is_that_of_the_counters(pair: list[Profile], mine: Profile) -> None:
    table = memory_traffic({"first": pair[0], "second": pair[1]})
    assert len(table) == 2 * len(LEVELS)
    # Coalesced: 1,024 wavefronts with 2 reads of 128 B and 4 writes of 64 B each between L1 and L2.
    assert table["bytes"].tolist()[:2] == [1024 * 8 * 128, 1024 * (2 * 128 + 4 * 64)]
    with pytest.raises(ValueError, match="did not count the traffic of l1"):
        memory_traffic({"modelled": mine})


def test_the_filter_of_the_lesson_keeps_other_averages(workloads: Path, mine: Profile) -> None:
    two = own_run(workloads / "two")
    assert 0 < len(two.events) < len(mine.events) / 5
    assert lesson.share_of_all_dispatches(two) > 2 * lesson.share_of_all_dispatches(mine)


def test_a_filter_that_matches_nothing_is_refused(
    workloads: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workloads.parent)
    command = "profile --name none -b 2 -k batch_norm -- python -m cifar_train --max-steps 2"
    assert stand_in(["rocprof-compute", *command.split()]) == 2
    assert "no kernel is left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (3, "A list of texts"),
        ([], "Each entry is a text"),
        (["igemm", ""], "Each entry is a text"),
        (["igemm", "BatchNorm", "Cijk", "Spatial"], "3 at most"),
        (["igemm", "batchnorm"], "No kernel has `batchnorm`"),
    ],
)
def test_filters_name_what_is_wrong(answer: object, words: str, mine: Profile) -> None:
    result = find("05.6").on(mine).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_other_good_filters_pass_too(mine: Profile) -> None:
    assert find("05.6").on(mine).evaluate(("igemm", "BatchNorm")).outcome is Outcome.PASSED


def test_a_share_as_a_fraction_gets_a_hint(mine: Profile) -> None:
    result = find("05.3").on(mine).evaluate(lesson.share_of_roof(mine) / 100)
    assert "looks like fraction; percent is asked" in result.message
