"""Which kind of event a category of AMD's profilers stands for, and which tool wrote it."""

from __future__ import annotations

import re

import numpy as np

from tidyprof.tables.codes import ABSENT
from tidyprof.tables.kinds import KIND_CODE, refined
from tidyprof.tables.records import Records

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

STREAM_CATEGORY = "rocm_hip_stream"
"""rocprof-sys's one category for kernels, copies and calls that it draws by HIP stream."""

_KIND_OF_NAME = {name: kind for kind, names in _KINDS.items() for name in names.split()} | {STREAM_CATEGORY: "kernel"}

_NAMES_DECIDE = {STREAM_CATEGORY, "device_hip", "device_hsa"}
"""Categories in which only the name tells a kernel from a copy."""

_LAUNCHING = {"hip_api", "hsa_api", "rocm_hip_api", "rocm_hsa_api", "rocm_hip", "rocm_hsa"}
"""Categories of the calls that can start work on a device."""

_COPY_NAME = re.compile(r"^(MEMORY_COPY_|Memcpy|Copy(Host|Device)To)", re.IGNORECASE)
_FILL_NAME = re.compile(r"^(Memset|Fill(Buffer)?$)")
_CALL_NAME = re.compile(r"^(hip|hsa_)[A-Za-z_]\w*$")
_TO_DEVICE = re.compile(r"HOST_TO_DEVICE|DEVICE_TO_DEVICE|HostToDevice|DeviceToDevice")
_FROM_DEVICE = re.compile(r"DEVICE_TO_HOST|DeviceToHost")
_SAMPLING_RANGE = re.compile(r"^samples \[(rocprof-?sys|omnitrace)\]")


def kinds_of(slices: Records, texts: list[str]) -> np.ndarray:
    """The place in KINDS of every slice's kind, from its category and name, int8.

    Slices with a kernel's number are kernels whatever they are called. The range that rocprof-sys puts around all
    samples of a thread is no sample.
    """
    kind = np.array([*map(_kind_of_category, texts)], np.int8)[slices["source_category"]]
    is_open = has_category(slices, texts, _NAMES_DECIDE) & (slices.get("kernel_id") == ABSENT)
    for target, pattern, where in (
        ("copy", _COPY_NAME, is_open),
        ("fill", _FILL_NAME, is_open),
        ("runtime", _CALL_NAME, is_open),
        ("annotation", _SAMPLING_RANGE, kind == KIND_CODE["sample"]),
    ):
        if where.any():
            kind[where & _matching(texts, pattern)[slices["name"]]] = KIND_CODE[target]
    return refined(kind, slices["name"], texts)


def has_category(slices: Records, texts: list[str], wanted: set[str]) -> np.ndarray:
    """Which slices have one of these names among those of their category."""
    found = [not wanted.isdisjoint(category.split(",")) for category in texts]
    return np.array(found, bool)[slices["source_category"]]


def is_launching(slices: Records, texts: list[str]) -> np.ndarray:
    """Which slices are calls that can start work on a device."""
    return (slices["kind"] == KIND_CODE["runtime"]) & has_category(slices, texts, _LAUNCHING)


def _kind_of_category(category: str) -> int:
    """The place in KINDS of a category's kind; one of several names counts by the first that is known."""
    kinds = (_KIND_OF_NAME.get(name) for name in category.split(","))
    return KIND_CODE[next(filter(None, kinds), "annotation")]


def ends_on_device(slices: Records, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Which copies say by their name that the GPU is their source, and which that it is their destination."""
    return tuple(_matching(texts, pattern)[slices["name"]] for pattern in (_FROM_DEVICE, _TO_DEVICE))


def tool_of(slices: Records, texts: list[str]) -> str:
    """The profiler that wrote slices of these categories and names, `Perfetto` if that is not to be told."""
    categories, names = (
        {texts[code] for code in np.unique(slices[column]).tolist()} for column in ("source_category", "name")
    )
    if categories & {"timer_sampling"} or any(text.startswith("rocm_") for text in categories):
        return "rocprof-sys"
    if any(map(_SAMPLING_RANGE.match, names)):
        return "rocprof-sys"
    own = {"kernel_dispatch", "memory_copy", "hip_api", "hsa_api", "marker_api", "rccl_api"}
    return "rocprofv3" if categories & own else "Perfetto"


def _matching(texts: list[str], pattern: re.Pattern[str]) -> np.ndarray:
    return np.array([bool(pattern.search(text)) for text in texts], bool)
