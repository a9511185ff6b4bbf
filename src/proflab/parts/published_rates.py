"""The rates that AMD published for this workload, line by line: real data on how a clock misleads."""

from __future__ import annotations

import pandas as pd

from tidyprof.tables.contract import Origin

SOURCE = (
    "https://github.com/amd/HPCTrainingExamples/blob/982d29d9e99c58e2781ef1434030bb93cbe5814d/"
    "MLExamples/PyTorch_Profiling/no-profiling/README.md"
)
"""The page with both listings; the repository is under the MIT licence."""

ORIGIN = Origin(
    "recorded", "AMD Instinct MI300X, ROCm 6.2, published by AMD in amd/HPCTrainingExamples (PyTorch_Profiling)"
)

COUNTED_IMAGES = 256
"""What the script divides by the time, in every line: its --batch-size, by default 256 (train_cifar_100.py)."""

TRAINING_IMAGES = 40_000
"""Images the script trains on: CIFAR-100's 50,000, split 80 to 20 (train_cifar_100.py, build_dataset)."""

WARMUP_STEPS = 5
"""First lines to leave out: step 4 is still slow, and the trainer of this course leaves out as many."""

FITTING_RANKS = 8
"""Ranks with which the parallel run would end after exactly its lines; how many there were is not stated."""

RATES = {
    "one GPU": (
        *(564.89, 11532.09, 13469.08, 13489.73, 4789.11, 10993.46, 12273.44, 12632.55, 12162.64, 12356.06, 12972.44),
        *(12873.21, 13010.79, 12716.79, 12882.02, 12878.00, 12432.17, 12922.48, 12857.34, 13012.37, 12677.30),
    ),
    "parallel": (
        *(411.42, 9687.05, 11088.59, 10073.19, 3684.07, 6932.24, 8611.57, 8248.45, 8277.13, 8166.58, 8663.68),
        *(8302.47, 8245.03, 8584.03, 10551.92, 10665.11, 10650.19, 10590.42, 10520.28, 3115.56),
    ),
}
"""Images per second and GPU, step 0 first. `parallel` is rank 0 of a run whose number of ranks is not stated."""


def published_rates(run: str) -> pd.DataFrame:
    """One row per published line of `run` ("one GPU" or "parallel").

    Columns: step; part (warmup or steady); profiled (never); duration_ns, the interval that the script's clock
    spanned (counted images / rate); images, what the line counted; images_per_second as printed.
    """
    rates = RATES[run]
    table = pd.DataFrame({"step": range(len(rates)), "images_per_second": rates})
    table["part"] = ["warmup" if step < WARMUP_STEPS else "steady" for step in table["step"]]
    table["profiled"] = False
    table["images"] = COUNTED_IMAGES
    table["duration_ns"] = (COUNTED_IMAGES / table["images_per_second"] * 1e9).round().astype("int64")
    table = table[["step", "part", "profiled", "duration_ns", "images", "images_per_second"]]
    table.attrs["origin"] = ORIGIN
    return table


def last_batch_images(lines: pd.DataFrame, ranks: int) -> int:
    """Images left for the last line if `ranks` ranks share the training images and all other lines had a full batch."""
    return TRAINING_IMAGES // ranks - COUNTED_IMAGES * (len(lines) - 1)
