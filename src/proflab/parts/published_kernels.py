"""The kernel statistics that AMD published for this workload: the first rows of rocprofv3's table, for two runs."""

from __future__ import annotations

import pandas as pd

from tidyprof.names.short_names import category, unique_short_names
from tidyprof.tables.contract import Origin

SOURCE = (
    "https://github.com/amd/HPCTrainingExamples/blob/982d29d9e99c58e2781ef1434030bb93cbe5814d/"
    "MLExamples/PyTorch_Profiling/rocprofv3/README.md"
)
"""The page with both listings; the repository is under the MIT licence."""

ORIGIN = Origin(
    "recorded",
    "AMD Instinct MI300X, ROCm release not stated, published by AMD in amd/HPCTrainingExamples (PyTorch_Profiling)",
)

STEPS = {"one GPU": 21, "parallel": 20}
"""Steps of each run: MIOpenBatchNormBwdSpatial was called 53 times in each, once for every batch norm of ResNet-50."""

NAMES = {
    "rccl": "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)",
    "copy": "__amd_rocclr_copyBuffer",
    "norm_backward": "MIOpenBatchNormBwdSpatial",
    "multiply": "vectorized_elementwise_kernel<4, AUnaryFunctor<float, MulFunctor>>",
    "norm_forward": "MIOpenBatchNormFwdTrainSpatial",
    "subtensor": "SubTensorOpWithScalar1d",
    "forward": "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32",
    "weights_ex1": "igemm_wrw_gtcx3_nhwc_fp16_bx0_ex1_bt256x256x32",
    "weights_ex0": "igemm_wrw_gtcx3_nhwc_fp16_bx0_ex0_bt256x256x32",
    "backward": "igemm_bwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32",
}
"""Names as published, cut where they repeat themselves."""

KINDS = {"rccl": "collective", "copy": "copy"}
"""What is no computation (see `tidyprof.KINDS`)."""

ROWS = {
    "one GPU": (
        ("copy", 7084, 17_229_993, 601, 10_656, 8.38),
        ("norm_backward", 1113, 13_283_773, 6_009, 51_117, 6.46),
        ("multiply", 3402, 12_535_732, 641, 12_458, 6.10),
        ("norm_forward", 1113, 10_454_471, 5_048, 20_351, 5.08),
        ("subtensor", 2898, 10_330_053, 1_161, 16_345, 5.02),
        ("forward", 609, 9_725_160, 11_818, 29_164, 4.73),
        ("weights_ex1", 252, 7_631_141, 24_877, 43_866, 3.71),
        ("weights_ex0", 378, 7_155_943, 13_741, 31_607, 3.48),
        ("backward", 462, 7_049_063, 11_938, 27_081, 3.43),
    ),
    "parallel": (
        ("rccl", 142, 916_515_855, 7_210, 382_428_559, 82.74),
        ("copy", 6768, 16_006_424, 601, 13_140, 1.44),
        ("norm_backward", 1060, 12_805_350, 4_847, 54_241, 1.16),
        ("multiply", 3220, 10_130_050, 681, 13_781, 0.9145),
        ("norm_forward", 1060, 9_491_028, 3_806, 18_106, 0.8568),
        ("forward", 563, 9_075_229, 8_172, 28_763, 0.8192),
        ("subtensor", 2774, 8_900_046, 1_081, 15_503, 0.8034),
        ("weights_ex1", 238, 7_955_597, 14_782, 49_634, 0.7182),
        ("weights_ex0", 360, 6_661_235, 11_056, 51_717, 0.6013),
    ),
}
"""Run -> rows of kernel, calls, total, shortest and longest call in ns, percent. `parallel` is the file of one rank;
how many there were is not stated. Both tables go on with smaller kernels, which are not published."""


def published_kernels(run: str) -> pd.DataFrame:
    """One row per published kernel of `run` ("one GPU" or "parallel"), largest total first.

    Columns as in `tidyprof.kernels` without std_ns; percent (0-100) is of all kernels, also those that are not listed.
    """
    table = pd.DataFrame(ROWS[run], columns=["kernel", "calls", "total_ns", "min_ns", "max_ns", "percent"])
    kinds = table["kernel"].map(KINDS).fillna("kernel")
    table["name"] = table.pop("kernel").map(NAMES)
    table["short_name"] = table["name"].map(unique_short_names(table["name"]))
    table["category"] = [category(name, kind) for name, kind in zip(table["name"], kinds, strict=True)]
    table["mean_ns"] = table["total_ns"] / table["calls"]
    columns = ["name", "short_name", "category", "calls", "total_ns", "mean_ns", "min_ns", "max_ns", "percent"]
    table = table[columns]
    table.attrs["origin"] = ORIGIN
    return table


def all_kernels_ns(table: pd.DataFrame) -> float:
    """Summed time in ns of all kernels of a published run, from its largest row's total and percent."""
    return float(table["total_ns"].iloc[0] / table["percent"].iloc[0] * 100)
