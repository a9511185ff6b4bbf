"""What the exercises of lesson 10 compute: on times and profiles by hand, and on functions that are no repair."""

from __future__ import annotations

import pandas as pd

import tidyprof
from proflab.exercises import exercises_of, find
from proflab.recordings import recording

lesson = exercises_of("10")


def times(eager: list[float], compiled: list[float]) -> pd.DataFrame:
    rows = {"eager": eager, "compiled": compiled}
    return pd.DataFrame(
        [{"how": how, "call": call, "ms": ms} for how, own in rows.items() for call, ms in enumerate(own)]
    )


def test_without_a_gain_nothing_is_judged() -> None:
    result = find("10.1").on(times(eager=[1] * 6, compiled=[100, 1, 1, 1, 1, 1])).evaluate(3)
    assert "never pays" in result.message


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
