"""What the exercises of lesson 05 compute, and which answers they refuse."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab import case
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lessons, lessons_folder
from proflab.standins.__main__ import main
from tidyprof import Profile

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


def test_the_published_layers_are_counted_as_in_the_exercise() -> None:
    layers = table("published_layers.csv")
    plain = layers[layers["stride"] == 1]
    assert len(plain) == 8
    for layer in plain.to_dict("records"):
        assert lesson.intensity(layer) == pytest.approx(layer["flop_per_byte"], abs=0.05)


def test_the_published_shares_follow_from_operations_and_durations() -> None:
    layers = table("published_layers.csv")
    size = (layers["size"] / layers["stride"]).apply(lambda half: -(-half // 1))
    one = layers["images"] * layers["filters"] * size**2 * layers["channels"] * layers["filter_width"] ** 2
    flops = 2 * one * layers["direction"].map({"forward": 1, "backward": 2})
    roofs = (layers["flop_per_byte"] * lesson.BANDWIDTH).clip(upper=lesson.ACHIEVABLE)
    shares = 100 * flops / layers["duration_ns"] * 1e9 / roofs
    # The published shares are means over calls.
    assert shares.mean() == pytest.approx(layers["pct_of_roof"].mean(), rel=0.02)


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


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    """What the stand-in writes for the case: all kernels, and the forward normalisation alone."""
    folder = tmp_path_factory.mktemp("counted")
    case_command = f"{case.command('05')} --max-steps 2"
    found = {}
    for name, only in {"all": [], "norm": ["-k", lesson.ONE_KERNEL]}.items():
        command = ["profile", "--name", name, "--no-roof", "-b", "2", "10", *only, "--", *case_command.split()]
        with contextlib.chdir(folder):
            assert main(["rocprof-compute", *command]) == 0
        found[name] = tidyprof.read(folder / "workloads" / name)
    return found


def kernels_of(profile: Profile) -> pd.DataFrame:
    """The dispatches of kernels as the lesson gives them to 05.2."""
    return profile.events[profile.events["kind"] == "kernel"].astype({"name": str})


def test_one_kernel_of_the_case_is_read_and_every_mistake_refused(counted: dict[str, Profile]) -> None:
    selftest("05.2", kernels_of(counted["all"]))
    selftest("05.3", counted["norm"])


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (3, "as a text"),
        ("rocprof-compute profile 'x", "can't read it"),
        ("rocprofv3 -- $CASE", "begins with"),
        ("rocprof-compute profile -k BatchNormFwd $CASE", "`--` has to stand"),
        ("rocprof-compute profile --name norm --no-roof -b 2 10 -k BatchNorm -- $CASE --max-steps 2", "other kernels"),
        (
            "rocprof-compute profile --name norm --no-roof -b 2 10 -k BatchNormFwd -- --max-steps 2",
            "program is missing",
        ),
        ("rocprof-compute profile --name n --no-roof -b 2 10 -k BatchNormFwd -- $CASE --max-steps 2", "--name norm"),
    ],
)
def test_a_command_for_something_else_is_refused_with_its_reason(
    counted: dict[str, Profile], command: object, says: str
) -> None:
    assert says in str(lesson.command_problem(command, kernels_of(counted["all"])))


def test_the_command_may_have_its_options_in_any_order(counted: dict[str, Profile]) -> None:
    command = "rocprof-compute profile -k MIOpenBatchNormFwd -b 2 10 --name norm --no-roof -- $CASE --max-steps 3"
    assert lesson.command_problem(command, kernels_of(counted["all"])) is None


HOMES = {
    "coalesced": ("coalescing", "coalesced_profile"),
    "stride": ("coalescing", "uncoalesced_profile"),
    "conflict": ("bank-conflict", "conflict_profile"),
}


@pytest.mark.parametrize("origin", ["whole", "cut"])
def test_every_mistake_is_refused_on_the_whole_recordings_and_on_their_cuts(recordings: Path, origin: str) -> None:
    root = recordings if origin == "whole" else lessons_folder().parent / "recordings" / "cuts"
    homes = {name: root / f"rocprof-compute-mi300x-{of}" / part / "MI300X_A1" for name, (of, part) in HOMES.items()}
    raw = pd.concat({name: pd.read_csv(home / "pmc_perf.csv") for name, home in homes.items()}).droplevel(1).copy()
    raw = raw.assign(clocks=raw["GRBM_GUI_ACTIVE"] / 8, CUs=304)
    selftest("05.4", raw)
    printed = pd.read_csv(homes["conflict"] / "analyze" / "2.1_Speed-of-Light.csv", index_col="Metric")["Pct of Peak"]
    blocks = table("blocks.csv").set_index("metric")["block"]
    nearest = pd.DataFrame({"conflict": printed}).join(blocks, how="inner").groupby("block").max().reset_index()
    selftest("05.5", (raw, nearest))
    copies = root / "rocprof-compute-mi200-vcopy"
    selftest("05.7", (pd.read_csv(copies / "pmc_perf.csv"), pd.read_csv(copies / "roofline.csv")))


def test_the_kernel_that_eats_the_gain_of_channels_last() -> None:
    before = pd.DataFrame({"name": ["batched_transpose_x", "norm_a", "igemm_x"], "total_ns": [30, 40, 35]})
    after = pd.DataFrame({"name": ["norm_b c", "igemm_x", "norm_d"], "total_ns": [90, 36, 20]})
    before["short_name"], after["short_name"] = before["name"], ["norm_b of four", "igemm_x", "norm_d"]
    selftest("05.8", (before, after))
    question = find("05.8").on((before, after))
    for given in ("norm_b c", "norm_b of four", "norm_b"):
        assert question.evaluate(given).outcome is Outcome.PASSED


def test_bytes_of_the_fabric_by_hand() -> None:
    counts = pd.Series({"RDREQ_sum": 10, "RDREQ_32B_sum": 2, "WRREQ_sum": 5, "WRREQ_64B_sum": 3})
    older = counts.add_prefix("TCC_EA_")
    assert lesson.fabric_bytes(older, "TCC_EA") == 8 * 64 + 2 * 32 + 3 * 64 + 2 * 32
    newer = pd.concat([counts.add_prefix("TCC_EA0_"), pd.Series({"TCC_BUBBLE_sum": 4})])
    assert lesson.fabric_bytes(newer) == 4 * 128 + 4 * 64 + 2 * 32 + 3 * 64 + 2 * 32
