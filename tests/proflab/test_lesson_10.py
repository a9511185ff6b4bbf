"""What the exercises of lesson 10 compute: on times and profiles by hand, and on functions that are no repair."""

from __future__ import annotations

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import exercises_of, find, selftest
from proflab.recordings import recording
from tests.proflab.test_lesson_02 import profile_of

lesson = exercises_of("10")


def times(eager: list[float], compiled: list[float]) -> pd.DataFrame:
    rows = {"eager": eager, "compiled": compiled}
    return pd.DataFrame(
        [{"how": how, "call": call, "ms": ms} for how, own in rows.items() for call, ms in enumerate(own)]
    )


def test_compiling_has_paid_when_what_was_saved_reaches_the_cost() -> None:
    # The first call costs 998 more than a steady one of 2, and each steady call saves 2.
    table = times(eager=[9, 5, 4, 4, 4, 4], compiled=[1000, 50, 2, 2, 2, 2])
    assert lesson.paid_after(table) == 499
    selftest("10.1", table)


def test_without_a_gain_nothing_is_judged() -> None:
    result = find("10.1").on(times(eager=[1] * 6, compiled=[100, 1, 1, 1, 1, 1])).evaluate(3)
    assert "never pays" in result.message


def test_compiler_and_regions_of_each_step_by_hand() -> None:
    profile = profile_of(
        ("annotation", "ProfilerStep#0", 0, 1000),
        ("annotation", "forward", 100, 950),
        ("operator", "entire_frame_compile", 100, 800),
        ("operator", "Torch-Compiled Region: 0/0", 850, 900),
        ("annotation", "ProfilerStep#1", 1000, 1200),
        ("operator", "entire_frame_compile", 1000, 1020),
        ("operator", "Torch-Compiled Region: 0/1", 1030, 1050),
        ("operator", "Torch-Compiled Region: 1/0", 1060, 1090),
    )
    assert lesson.compiling_share(profile) == pytest.approx(100 * 720 / 1200)
    assert lesson.regions_of_last_step(profile) == 2
    selftest("10.5", profile)
    selftest("10.6", profile)


def test_what_compiling_does_to_the_vision_transformer() -> None:
    eager, compiled = (
        tidyprof.operators(tidyprof.read(recording(name).path)).set_index("name")["calls"]
        for name in ("torch-cpu-vit", "torch-cpu-vit-compiled")
    )
    for kept in ("aten::addmm", "aten::mm", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::lerp_"):
        assert eager[kept] == compiled[kept] > 0
    for merged in ("aten::gelu", "aten::native_layer_norm"):
        assert eager[merged] > 0
        assert merged not in compiled
