"""Plot kernels below a GPU's roofs, and print how close each kernel is to its roof.

    # TFLOP/s and TB/s, from the data sheet
    python 05_roofline.py points.csv --peak 1307 --bandwidth 5.3
    # counters and roofs from rocprof-compute
    python 05_roofline.py FOLDER/pmc_perf.csv --roofs FOLDER/roofline.csv

points.csv contains your own counts in the columns name, flop, bytes and seconds. Each
count is a sum over all calls to a kernel. Bytes count the traffic between L2 and
memory.

`rocprof-compute` writes pmc_perf.csv on an MI200 or MI300, with one column or one row
per counter. Starting with ROCm 7.13, `rocprof-compute analyze -p FOLDER` writes
pmc_perf.csv. Starting with ROCm 10.2, the name of this file ends in .gz. If several
runs of the program timed a kernel launch, the script uses the first time.

FOLDER is workloads/NAME plus the GPU, such as workloads/NAME/MI300X_A1. In a Slurm
step, FOLDER is workloads/NAME plus the rank (ROCm 7.12 and newer).

The roofs come from --peak and --bandwidth, or from rocprof-compute's HBM and FP16
matrix measurements of GPU 0. The script saves the figure to roofline.png or to the file
that --out names.
"""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

NEEDED = ["flop", "bytes", "seconds"]


def points_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per kernel, with the sums of flop, bytes and seconds over all
    calls.
    """
    if {"name", *NEEDED} <= {*table.columns}:
        return table.groupby("name")[NEEDED].sum()
    if "Kernel_Name" not in table:
        raise SystemExit(
            f"The columns must be name, {', '.join(NEEDED)}, or the columns of "
            "pmc_perf.csv."
        )
    # Convert one row per counter into one row per launch
    if "Counter_Name" in table:
        launch = table.groupby("Dispatch_ID")[
            ["Kernel_Name", "Start_Timestamp", "End_Timestamp"]
        ].first()
        counted = table.drop_duplicates(["Dispatch_ID", "Counter_Name"])
        table = launch.join(
            counted.pivot(
                index="Dispatch_ID", columns="Counter_Name", values="Counter_Value"
            )
        )
    # MI300 and MI200
    edge = "TCC_EA0" if "TCC_EA0_RDREQ_sum" in table else "TCC_EA"
    missing = {f"{edge}_RDREQ_sum", f"{edge}_WRREQ_sum", "SQ_INSTS_VALU_FMA_F32"} - {
        *table.columns
    }
    if missing:
        raise SystemExit(
            f"Missing counters: {', '.join(sorted(missing))}. Profile block 2 or all "
            "blocks as CSV."
        )
    # Reads of 128 bytes instead of 64
    large = table.get("TCC_BUBBLE_sum", 0)
    found = pd.DataFrame({"name": table["Kernel_Name"]})
    found["flop"] = 512 * table.filter(regex="^SQ_INSTS_VALU_MFMA_MOPS_B?F").sum(axis=1)
    found["flop"] += 64 * table.filter(regex="^SQ_INSTS_VALU_(ADD|MUL|TRANS)_F").sum(
        axis=1
    )
    found["flop"] += 128 * table.filter(regex="^SQ_INSTS_VALU_FMA_F").sum(axis=1)
    found["bytes"] = 64 * (table[f"{edge}_RDREQ_sum"] + large) - 32 * table.get(
        f"{edge}_RDREQ_32B_sum", 0
    )
    found["bytes"] += 32 * (
        table[f"{edge}_WRREQ_sum"] + table.get(f"{edge}_WRREQ_64B_sum", 0)
    )
    found["seconds"] = (table["End_Timestamp"] - table["Start_Timestamp"]) / 1e9
    return found.groupby("name")[NEEDED].sum()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("points", help="read the kernels from this CSV file")
    parser.add_argument(
        "--roofs", help="read the roofs from rocprof-compute's roofline.csv"
    )
    parser.add_argument("--peak", type=float, help="set the flat roof in TFLOP/s")
    parser.add_argument("--bandwidth", type=float, help="set the slanted roof in TB/s")
    parser.add_argument("--out", default="roofline.png")
    options = parser.parse_args()
    if options.roofs:
        measured = pd.read_csv(options.roofs).iloc[0]
        peak, bandwidth = 1e9 * measured["MFMAF16Flops"], 1e9 * measured["HBMBw"]
    elif options.peak and options.bandwidth:
        peak, bandwidth = 1e12 * options.peak, 1e12 * options.bandwidth
    else:
        parser.error("Pass --roofs, or --peak and --bandwidth.")

    points = points_of(pd.read_csv(options.points)).sort_values(
        "seconds", ascending=False
    )
    points["intensity"] = points["flop"] / points["bytes"]
    points["roof"] = np.minimum(peak, points["intensity"] * bandwidth)
    points["percent"] = 100 * points["flop"] / points["seconds"] / points["roof"]
    points["percent_of_bandwidth"] = (
        100 * points["bytes"] / points["seconds"] / bandwidth
    )
    print(f"knee at {peak / bandwidth:.0f} FLOP per byte")
    for name, row in points.iterrows():
        share = f"{row['percent']:.1f}% of its roof" if row["flop"] else "no FLOP"
        memory = f"{row['percent_of_bandwidth']:.1f}% of the bandwidth"
        print(
            f"{row['seconds'] * 1e6:10.1f} us  {row['intensity']:8.3g} FLOP/byte  "
            f"{share}, {memory}  {name[:60]}"
        )

    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    x = np.logspace(-3, 4, 400)
    axes.loglog(x, np.minimum(peak, x * bandwidth), "k-")
    for name, row in points[points["flop"] > 0].head(8).iterrows():
        label = f"{name[:40]}: {row['percent']:.1f}%"
        axes.plot(
            row["intensity"],
            row["flop"] / row["seconds"],
            "o",
            markersize=9,
            label=label,
        )
    axes.set(xlabel="FLOP per byte of memory traffic", ylabel="FLOP/s")
    axes.set_title(f"roofs: {peak / 1e12:.0f} TFLOP/s and {bandwidth / 1e12:.2f} TB/s")
    if len(points[points["flop"] > 0]):
        axes.legend(fontsize=8)
    figure.savefig(options.out, dpi=150)
    print(
        f"{options.out}: {(points['flop'] > 0).sum()} of {len(points)} kernels have "
        "FLOP"
    )


if __name__ == "__main__":
    main()
