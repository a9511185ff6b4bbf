"""What the exercises of lesson 05 compute, and which answers they refuse."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab import case
from proflab.exercises import exercises_of, find, selftest
from proflab.lessons import lessons, lessons_folder
from proflab.standins.__main__ import main

lesson = exercises_of("05")


def table(name: str) -> pd.DataFrame:
    """A published table beside the lesson."""
    return pd.read_csv(lessons()["05"].folder / name, comment="#")


def test_a_convolution_counted_by_hand() -> None:
    # 16 outputs of 3 channels; each needs 2 channels x 9 weights, a multiplication and an addition:
    # 16 x 3 x 18 x 2 operations. 32 numbers in, 54 weights, 48 out, 2 bytes each.
    small = {"images": 1, "channels": 2, "filters": 3, "size": 4, "filter_width": 3}
    assert lesson.intensity(small) == pytest.approx(1728 / 268)
    # AMD prints 542.1 FLOP per byte for this one.
    published = {"images": 256, "channels": 256, "filters": 256, "size": 2, "filter_width": 3}
    assert lesson.intensity(published) == pytest.approx(542.1, abs=0.05)


def test_the_published_layers_are_counted_as_in_the_exercise() -> None:
    layers = table("published_layers.csv")
    plain = layers[layers["stride"] == 1]
    assert len(plain) == 8
    for layer in plain.to_dict("records"):
        assert lesson.intensity(layer) == pytest.approx(layer["flop_per_byte"], abs=0.05)


def test_the_published_shares_follow_from_operations_and_durations() -> None:
    layers = table("published_layers.csv")
    size = (layers["size"] / layers["stride"]).apply(lambda half: -(-half // 1))
    one = (
        layers["images"]
        * layers["filters"]
        * size**2
        * layers["channels"]
        * layers["filter_width"] ** 2
    )
    flops = 2 * one * layers["direction"].map({"forward": 1, "backward": 2})
    roofs = (layers["flop_per_byte"] * lesson.BANDWIDTH).clip(upper=lesson.ACHIEVABLE)
    shares = 100 * flops / layers["duration_ns"] * 1e9 / roofs
    # The published shares are means over calls.
    assert shares.mean() == pytest.approx(layers["pct_of_roof"].mean(), rel=0.02)


def test_every_block_is_one_of_the_tools_metrics(recordings: Path) -> None:
    folder = recordings / "rocprof-compute-mi300x-coalescing/coalesced_profile/MI300X_A1/analyze"
    metrics = pd.read_csv(folder / "2.1_Speed-of-Light.csv")["Metric"]
    assert set(table("blocks.csv")["metric"]) <= {*metrics}


def test_one_kernel_of_the_case_is_read_and_every_mistake_refused(tmp_path: Path) -> None:
    options = ["--name", "norm", "--no-roof", "-b", "2", "10", "-k", "BatchNormFwd"]
    with contextlib.chdir(tmp_path):
        assert (
            main(
                [
                    "rocprof-compute",
                    "profile",
                    *options,
                    "--",
                    *f"{case.command('05')} --max-steps 2".split(),
                ]
            )
            == 0
        )
    selftest("05.2", tidyprof.read(tmp_path / "workloads" / "norm"))


def test_what_is_forgotten_in_a_convolution_is_named() -> None:
    layer = {"images": 1024, "channels": 128, "filters": 128, "size": 4, "filter_width": 3}
    selftest("05.1", layer)
    question = find("05.1").on(layer)
    # Numbers of four bytes give what one operation in the place of two gives: the reply has both.
    assert "four bytes" in question.evaluate(lesson.intensity(layer, bytes_each=4)).message
    assert "`size**2`" in question.evaluate(lesson.intensity(layer, squared=(1, 2))).message


HOMES = {"coalesced": "coalesced_profile", "stride": "uncoalesced_profile"}


@pytest.mark.parametrize("origin", ["whole", "cut"])
def test_every_mistake_is_refused_on_the_whole_recordings_and_on_their_cuts(
    recordings: Path, origin: str
) -> None:
    root = recordings if origin == "whole" else lessons_folder().parent / "recordings" / "cuts"
    homes = {
        name: root / "rocprof-compute-mi300x-coalescing" / part / "MI300X_A1"
        for name, part in HOMES.items()
    }
    raw = (
        pd.concat({name: pd.read_csv(home / "pmc_perf.csv") for name, home in homes.items()})
        .droplevel(1)
        .copy()
    )
    selftest("05.3", raw)
    assert lesson.moved_for_needed(raw) == pytest.approx(10.1, abs=0.05)


def test_bytes_of_the_fabric_by_hand() -> None:
    counts = pd.Series(
        {"RDREQ_sum": 10, "RDREQ_32B_sum": 2, "WRREQ_sum": 5, "WRREQ_64B_sum": 3}
    ).add_prefix("TCC_EA0_")
    newer = pd.concat([counts, pd.Series({"TCC_BUBBLE_sum": 4})])
    assert lesson.fabric_bytes(newer) == 4 * 128 + 4 * 64 + 2 * 32 + 3 * 64 + 2 * 32


def test_no_table_above_its_exercise_prints_the_share_of_the_roof() -> None:
    above, _, _ = (
        (lessons()["05"].folder / "lesson.py")
        .read_text(encoding="utf-8")
        .partition('exercise("05.2"')
    )
    # Rows 2.1.23 and 2.1.24 are reads and writes of the fabric in percent of its peak, and add up
    # to the answer.
    assert "rocprof-compute analyze -p workloads/norm/* -b 2.1.0 2.1.8 " in above
    assert "2.1.23" not in above
