"""The snippet of lesson 05 on counts written by hand, as its own table and as counters."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.snippets.conftest import Run

ROOFS = "HBMBw,MFMAF16Flops\n1000,100000\n"
"""In 10^9 per second: 1 TB/s and 100 TFLOP/s."""


def test_points_counted_by_hand(bare: Run, tmp_path: Path) -> None:
    # 20 FLOP per byte: the roof is 20 TFLOP/s, and 20 MFLOP in 2 us are 10. The copy moves 1 MB in
    # 4 us.
    rows = ["name,flop,bytes,seconds", "norm,1e7,5e5,1e-6", "norm,1e7,5e5,1e-6", "copy,0,1e6,4e-6"]
    (tmp_path / "points.csv").write_text("\n".join(rows))
    command = (
        "python",
        "snippets/05_roofline.py",
        "points.csv",
        "--peak",
        "100",
        "--bandwidth",
        "1",
    )
    lines = bare(*command).stdout.splitlines()
    assert lines[0] == "knee at 100 FLOP per byte"
    assert lines[1].split("  ")[-2:] == ["no FLOP, 25.0 % of the bandwidth", "copy"]
    assert " 20 FLOP/byte  50.0 % of its roof, 50.0 % of the bandwidth  norm" in lines[2]
    assert lines[3] == "roofline.png: 1 of 2 kernels have FLOP to draw"
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_points_from_counters(layout: str, bare: Run, tmp_path: Path) -> None:
    launch = {
        "Dispatch_ID": 1,
        "Kernel_Name": "gemm(float*, int)",
        "Start_Timestamp": 1000,
        "End_Timestamp": 3000,
    }
    counters = {
        "SQ_INSTS_VALU_MFMA_MOPS_F16": 10_000,  # 512 FLOP each: 5.12 MFLOP
        "SQ_INSTS_VALU_MFMA_MOPS_I8": 77,
        "SQ_INSTS_VALU_ADD_F32": 1_000,  # 64 each
        "SQ_INSTS_VALU_FMA_F32": 500,  # 128 each: 0.128 MFLOP together
        "TCC_EA0_RDREQ_sum": 1_000,  # 64 bytes each, of which 400 have 64 more and 100 have 32 less
        "TCC_BUBBLE_sum": 400,
        "TCC_EA0_RDREQ_32B_sum": 100,
        "TCC_EA0_WRREQ_sum": 300,  # 32 bytes each, 200 of them 32 more: 102,400 bytes together
        "TCC_EA0_WRREQ_64B_sum": 200,
    }
    rows = [launch | counters]
    if layout == "long":
        rows = [
            launch | {"Counter_Name": name, "Counter_Value": value}
            for name, value in counters.items()
        ]
        rows.append(
            rows[0] | {"Start_Timestamp": 5000, "End_Timestamp": 9000}
        )  # another run of the program
    pd.DataFrame(rows).to_csv(tmp_path / "pmc_perf.csv", index=False)
    (tmp_path / "roofline.csv").write_text(ROOFS)
    command = (
        "python",
        "snippets/05_roofline.py",
        "pmc_perf.csv",
        "--roofs",
        "roofline.csv",
        "--out",
        "here.png",
    )
    found = bare(*command).stdout
    # 5.248 MFLOP by 102,400 bytes; 2.624 TFLOP/s of 51.25.
    assert "51.2 FLOP/byte  5.1 % of its roof, 5.1 % of the bandwidth  gemm(float*, int)" in found
    assert (tmp_path / "here.png").is_file()


def test_what_is_missing_is_said(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "pmc_perf.csv").write_text("Kernel_Name,SQ_WAVES\ncopy,1\n")
    command = ("python", "snippets/05_roofline.py", "pmc_perf.csv")
    assert "give --roofs, or --peak and --bandwidth" in bare(*command, check=False).stderr
    found = bare(*command, "--peak", "100", "--bandwidth", "1", check=False)
    assert (
        found.returncode,
        "not counted: SQ_INSTS_VALU_FMA_F32, TCC_EA_RDREQ_sum" in found.stderr,
    ) == (1, True)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    found = bare(
        "python",
        "snippets/05_roofline.py",
        "other.csv",
        "--peak",
        "1",
        "--bandwidth",
        "1",
        check=False,
    )
    assert "neither name, flop, bytes, seconds" in found.stderr
