"""Which kind of event a category of AMD's profilers stands for, and which tool wrote it."""

from __future__ import annotations

import re

import numpy as np

from tidyprof.tables.kind_codes import KIND_CODE

_KINDS = {
    "kernel": "kernel_dispatch rocm_kernel_dispatch device_hip device_hsa",
    "copy": "memory_copy rocm_memory_copy",
    "sample": "timer_sampling overflow_sampling sampling",
    "runtime": (
        "hip_api hsa_api rccl_api rocdecode_api rocjpeg_api hipfile_api kfd_api ompt openmp "
        "rocm_hip_api rocm_hsa_api rocm_rccl_api rocm_rocdecode_api rocm_rocjpeg_api rocm_hip rocm_hsa rccl "
        "mpi pthread numa vaapi ucx shmem scratch_memory memory_allocation page_migration "
        "rocm rocm_scratch_memory rocm_memory_allocate rocm_page_migration"
    ),
}
"""Categories of rocprofv3 (rocprofiler-sdk, source/include/rocprofiler-sdk/cxx/perfetto.hpp), rocprof-sys
(rocprofiler-systems, source/lib/core/categories.hpp) and omnitrace. Others are annotations: ranges of ROCTX,
of Python and of the user, and whatever else a program writes."""

KIND_OF_CATEGORY = {category: kind for kind, categories in _KINDS.items() for category in categories.split()}
"""Kind of every known category but STREAM_CATEGORY."""

STREAM_CATEGORY = "rocm_hip_stream"
"""rocprof-sys's one category for kernels, copies and calls that it draws by HIP stream."""

MIXED_CATEGORIES = (STREAM_CATEGORY, "device_hip", "device_hsa")
"""Categories in which only the name tells a kernel from a copy."""

LAUNCHING = ("hip_api", "hsa_api", "rocm_hip_api", "rocm_hsa_api", "rocm_hip", "rocm_hsa")
"""Categories of the calls that can start work on a device."""

_COPY_NAME = re.compile(r"^(MEMORY_COPY_|Memcpy|Copy(Host|Device)To)", re.IGNORECASE)
_FILL_NAME = re.compile(r"^(Memset|Fill(Buffer)?$)")
_CALL_NAME = re.compile(r"^(hip|hsa_)[A-Za-z_]\w*$")
_TO_DEVICE = re.compile(r"HOST_TO_DEVICE|DEVICE_TO_DEVICE|HostToDevice|DeviceToDevice")
_FROM_DEVICE = re.compile(r"DEVICE_TO_HOST|DeviceToHost")
_SAMPLING_RANGE = re.compile(r"^samples \[(rocprof-?sys|omnitrace)\]")


def kinds_of_categories(categories: list[str]) -> np.ndarray:
    """For each category the place of its kind in KINDS; those of several names count by the first that is known."""
    kinds = []
    for category in categories:
        names = [name for name in category.split(",") if name in KIND_OF_CATEGORY or name == STREAM_CATEGORY]
        name = names[0] if names else ""
        kinds.append(KIND_CODE["kernel" if name == STREAM_CATEGORY else KIND_OF_CATEGORY.get(name, "annotation")])
    return np.array(kinds, np.int8)


def corrected(
    kind: np.ndarray, name: np.ndarray, names: list[str], is_mixed: np.ndarray, is_dispatch: np.ndarray
) -> np.ndarray:
    """Kinds after a look at the names.

    is_mixed    -- events of categories that hold kernels, copies and fills, and even calls (MIXED_CATEGORIES).
    is_dispatch -- events with a kernel's number, which are kernels whatever they are called.

    The range that rocprof-sys puts around all samples of a thread is no sample.
    """
    kind = kind.copy()
    is_open = is_mixed & ~is_dispatch
    for target, pattern, where in (
        ("copy", _COPY_NAME, is_open),
        ("fill", _FILL_NAME, is_open),
        ("runtime", _CALL_NAME, is_open),
        ("annotation", _SAMPLING_RANGE, kind == KIND_CODE["sample"]),
    ):
        matching = _matching(names, pattern)
        if matching.any():
            kind[where & matching[name]] = KIND_CODE[target]
    return kind


def to_device(names: list[str]) -> np.ndarray:
    """Which names of copies say that the GPU is their destination."""
    return _matching(names, _TO_DEVICE)


def from_device(names: list[str]) -> np.ndarray:
    """Which names of copies say that the GPU is their source."""
    return _matching(names, _FROM_DEVICE)


def tool_of(categories: set[str], has_sampling_range: bool) -> str:
    """The profiler that wrote events of these categories, `Perfetto` if that is not to be told."""
    if has_sampling_range or any(name.startswith("rocm_") for name in categories) or "timer_sampling" in categories:
        return "rocprof-sys"
    own = {"kernel_dispatch", "memory_copy", "hip_api", "hsa_api", "marker_api", "rccl_api"}
    return "rocprofv3" if categories & own else "Perfetto"


def has_sampling_range(names: list[str]) -> bool:
    """Whether one of the names is that of the range around all samples of a thread."""
    return bool(_matching(names, _SAMPLING_RANGE).any())


def _matching(names: list[str], pattern: re.Pattern[str]) -> np.ndarray:
    return np.fromiter((bool(pattern.search(name)) for name in names), bool, len(names))
