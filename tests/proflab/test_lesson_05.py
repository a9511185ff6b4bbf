"""What the exercises of lesson 05 compute, and the memory chart."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from proflab.exercises import exercises_of
from proflab.lessons import lessons
from proflab.parts.memory_chart import LINKS, memory_chart

lesson = exercises_of("05")


def table(name: str) -> pd.DataFrame:
    """A published table beside the lesson."""
    return pd.read_csv(lessons()["05"].folder / name, comment="#")


def test_a_convolution_counted_by_hand() -> None:
    # 16 outputs of 3 channels; each needs 2 channels x 9 weights, a multiplication and an addition: 16 x 3 x 18 x 2
    # operations. 32 numbers in, 54 weights, 48 out, 2 bytes each.
    small = {"images": 1, "channels": 2, "filters": 3, "size": 4, "filter_width": 3}
    assert lesson.intensity(small) == pytest.approx(1728 / 268)
    # AMD prints 542.1 FLOP per byte for this one.
    published = {"images": 256, "channels": 256, "filters": 256, "size": 2, "filter_width": 3}
    assert lesson.intensity(published) == pytest.approx(542.1, abs=0.05)


def test_the_layers_are_as_near_to_their_roofs_as_amd_says() -> None:
    # Columns FLOPS/Byte and Pct Roofline of AMD's workbook; its shares are means over calls, hence the tolerance.
    intensities = [51.0, 51.0, 99.9, 146.3, 542.1, 170.7, 542.1, 31.9, 230.4, 123.6]
    shares = [0.72, 0.69, 0.69, 0.48, 3.79, 0.49, 5.60, 8.57, 8.85, 4.03]
    layers = table("published_layers.csv")
    assert len(layers) == len(intensities)
    layers["intensity"] = intensities
    size = (layers["size"] / layers["stride"]).apply(lambda half: -(-half // 1))
    one = layers["images"] * layers["filters"] * size**2 * layers["channels"] * layers["filter_width"] ** 2
    layers["flops"] = 2 * one * layers["direction"].map({"forward": 1, "backward": 2})
    assert lesson.mean_share(layers) == pytest.approx(sum(shares) / 10, rel=0.02)


def test_the_published_table_is_that_of_an_mi300a_with_doubled_peaks() -> None:
    printed = table("published_speed_of_light.csv").set_index("metric").loc["MFMA FLOPs (F16)"]
    # 61286.4 = 128 x 228 x 2.1, and the true F16 peak 2048 x 228 x 2.1 is half of the printed one.
    assert printed["peak"] == pytest.approx(2 * 2048 * 228 * 2.1)
    assert printed["pct_of_peak"] == pytest.approx(100 * printed["value"] / printed["peak"], abs=0.005)
    assert lesson.true_share(table("published_speed_of_light.csv")) == pytest.approx(0.44, abs=0.005)


def test_every_block_is_one_of_the_tools_metrics(recordings: Path) -> None:
    folder = recordings / "rocprof-compute-mi300x-coalescing/coalesced_profile/MI300X_A1/analyze"
    metrics = pd.read_csv(folder / "2.1_Speed-of-Light.csv")["Metric"]
    assert set(table("blocks.csv")["metric"]) <= {*metrics}


def test_bytes_of_the_fabric_by_hand() -> None:
    counts = pd.Series({"RDREQ_sum": 10, "RDREQ_32B_sum": 2, "WRREQ_sum": 5, "WRREQ_64B_sum": 3})
    older = counts.add_prefix("TCC_EA_")
    assert lesson.fabric_bytes(older, "TCC_EA") == 8 * 64 + 2 * 32 + 3 * 64 + 2 * 32
    newer = pd.concat([counts.add_prefix("TCC_EA0_"), pd.Series({"TCC_BUBBLE_sum": 4})])
    assert lesson.fabric_bytes(newer) == 4 * 128 + 4 * 64 + 2 * 32 + 3 * 64 + 2 * 32


def test_the_memory_chart_says_in_words_what_it_shows() -> None:
    links = pd.DataFrame({"LDS": [0, 0], "vL1D": [2e6, 4e6], "L2": [1e6, 24e6], "fabric": [1e6, 8e6]}, index=["a", "b"])
    figure = memory_chart(links, 1e6, "recorded: somewhere", title="Bytes")
    assert "The most is 24.00 MB by b at L2, 24.0 times" in figure.alternative_text
    assert figure.origin == "recorded: somewhere"
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "a: 1.00 MB (1.0×)\nb: 8.00 MB (8.0×)" in texts
    assert "not used" in texts
    with pytest.raises(KeyError):
        memory_chart(links[list(LINKS)[:2]], 1e6, "recorded: somewhere")
