"""Log GPU activity while a command runs, or summarize such a log.

    python 01_gpu_log.py record gpu.csv python train.py --epochs 3
    python 01_gpu_log.py summary gpu.csv
    python 01_gpu_log.py summary gpu.csv --images 50000
    python 01_gpu_log.py summary gpu.csv --begin 2026-01-31T10:00 --end 2026-01-31T10:30

`record` runs `amd-smi monitor` on this node while the command runs. In a job on several
nodes, start this script on each node with a separate file. If amd-smi is missing, the
command still runs.

`summary` uses the samples in which a GPU held memory, or the samples from a time window
(in UTC). --images is the number of images that each GPU processed. With this option,
`summary` also prints the energy per image.
"""

import argparse
import csv
import pathlib
import signal
import subprocess
import sys

import pandas as pd

MONITOR = "amd-smi monitor -p -t -u -m -v -w 1 --csv --file"


def record(options):
    """Run the command and the monitor, and return the command's exit code."""
    if pathlib.Path(options.file).exists():
        sys.exit(
            f"{options.file} already exists. Delete this file or choose another name."
        )
    monitor = [*MONITOR.split(), options.file]
    try:
        monitor = subprocess.Popen(
            monitor, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
    except OSError as error:
        print(f"The GPUs aren't monitored: {error}", file=sys.stderr)
        return subprocess.run(options.command).returncode
    try:
        return subprocess.run(options.command).returncode
    finally:
        # Same signal as Ctrl-C
        monitor.send_signal(signal.SIGINT)
        monitor.wait()


def read(file):
    """Return the samples without repeated headers and empty lines.

    The column names differ between amd-smi releases.
    """
    with open(file, newline="") as lines:
        rows = [row for row in csv.reader(lines) if len(row) > 1]
    samples = pd.DataFrame(
        [row for row in rows[1:] if row != rows[0]],
        columns=[name.lower() for name in rows[0]],
    )
    # N/A means that the GPU lacks the sensor
    return samples.apply(pd.to_numeric, errors="coerce")


def summary(options):
    """Print one row per GPU."""
    samples = read(options.file)
    when = pd.to_datetime(samples["timestamp"], unit="s")
    if options.begin or options.end:
        kept = when.between(options.begin or when.min(), options.end or when.max())
    else:
        kept = (
            samples["vram_used"]
            > samples.groupby("gpu")["vram_used"].transform("max") / 2
        )
    print(
        f"{when[kept].min()} to {when[kept].max()} UTC of {when.min()} to {when.max()}"
    )
    rows = {
        gpu: one_gpu(own, kept[own.index], options.images)
        for gpu, own in samples.groupby("gpu")
    }
    print(
        pd.DataFrame(rows)
        .T.rename_axis("gpu")
        .dropna(axis="columns", how="all")
        .round(1)
        .to_string()
    )
    return 0


def one_gpu(own, kept, images):
    """Return the medians, the peak memory use and the energy of one GPU.

    The energy is the sum of mean power times seconds over all pairs of neighboring
    samples in which both samples are kept.
    """
    joules = own["timestamp"].diff() * own["power_usage"].rolling(2).mean()
    joules = joules[kept & kept.shift(fill_value=False)].sum()
    own = own[kept]
    return {
        "samples": len(own),
        "busy %": own["gfx"].median(),
        "memory busy %": own["mem"].median(),
        "power W": own["power_usage"].median(),
        # Since ROCm 7
        "limit W": own["max_power"].median() if "max_power" in own else None,
        # amd-smi's MB is 2**20 bytes
        "memory GB": own["vram_used"].max() * 2**20 / 1e9,
        "energy Wh": joules / 3600,
        "J/image": joules / images if images else None,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(required=True)
    recording = actions.add_parser("record")
    recording.add_argument("file")
    recording.add_argument("command", nargs=argparse.REMAINDER)
    recording.set_defaults(run=record)
    reading = actions.add_parser("summary")
    reading.add_argument("file")
    reading.add_argument("--begin", type=pd.Timestamp)
    reading.add_argument("--end", type=pd.Timestamp)
    reading.add_argument("--images", type=int)
    reading.set_defaults(run=summary)
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
