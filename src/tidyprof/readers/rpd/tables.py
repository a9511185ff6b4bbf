"""The tables of an rpd file as columns: what ran on the GPUs, and what was called on the host.

Schema: rocpd_python/rocpd/schema_data/tableSchema.cmd of https://github.com/ROCm/rocmProfileData, versions 2 and 3.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tidyprof.io.sqlite import Database
from tidyprof.readers.torch.events import Codes
from tidyprof.tables.database_rows import Rows, counted, drop_unusable, refine_kinds, refuse_repeated, text_codes
from tidyprof.tables.event_blocks import first_equal
from tidyprof.tables.kind_codes import KIND_CODE

MARKER = "UserMarker"
"""Name of the calls that stand for ranges which a program marked itself; their text is in the arguments."""

KERNEL_TYPES = ("KernelExecution", "Task")
"""Operation types of kernels. Kernels that run in a HIP graph are of type `Task`, roctracer's name for them."""

NOT_KEPT = -1
"""Kind of operations that are no work of the device, such as barriers."""

GRID = ("gridX", "gridY", "gridZ")
BLOCK = ("workgroupX", "workgroupY", "workgroupZ")
LARGE_TABLES = {
    "rocpd_api": ("id", "pid", "tid", "start", "end", "apiName_id"),
    "rocpd_op": ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"),
    "rocpd_api_ops": ("api_id", "op_id"),
    "rocpd_copyapi": ("api_ptr_id", "size"),
    "rocpd_kernelapi": ("api_ptr_id", *GRID, *BLOCK, "kernelName_id"),
}
"""Tables with a row for each call or operation -> columns that are read."""

_COPY_TYPE = re.compile(r"copy|memcpy|memory_copy", re.IGNORECASE)
_FILL_TYPE = re.compile(r"fill|memset", re.IGNORECASE)
_RUNTIME_CALL = re.compile(r"_*(hip[A-Z]|hsa_|cu(da)?[A-Z]|[nr]ccl[A-Z])")
_TRACER_CALL = re.compile(r"hcc_activity_callback|BLOCKING|\w+(Table|DataSource)::\w+")
_OPERATOR_MARKER = re.compile(r"(.+?)(, seq = \d+)?, op_id = \d+(, sizes = .*)?", re.DOTALL)


def read_operations(database: Database, texts: Codes) -> Rows:
    """Work on the GPUs: the columns of rocpd_op, and kind, name and category (operation type).

    The name of a copy is its type. Raises ProfileReadError if too many rows are unusable.
    """
    found = database.integers("rocpd_op", LARGE_TABLES["rocpd_op"])
    category = text_codes(database, found.pop("opType_id"), texts)
    name = text_codes(database, found.pop("description_id"), texts)
    name = np.where(name == texts[""], category, name)
    rows = Rows(found | {"category": category, "name": name}, len(name))
    rows.columns["kind"] = _operation_kinds(category, name, texts)
    refuse_repeated(database.path, "GPU operations", found["id"])
    drop_unusable(database.path, rows, "GPU operations", on_device=True)
    is_work = rows["kind"] != NOT_KEPT
    rows.not_kept = counted(rows["category"][~is_work], texts)
    rows.keep(is_work)
    refine_kinds(rows, texts)
    return rows


def read_calls(database: Database, texts: Codes) -> Rows:
    """Calls and ranges on the host: `id`, `pid`, `tid`, start, end, kind, name, and in schema 3 a category (domain)."""
    found = database.integers("rocpd_api", LARGE_TABLES["rocpd_api"])
    if "domain_id" in database.tables["rocpd_api"]:
        domain = database.integers("rocpd_api", ("domain_id",))["domain_id"]
        found["category"] = text_codes(database, domain, texts)
        found["category"][found["category"] == texts[""]] = -1
    name_ids = found.pop("apiName_id")
    found["name"] = text_codes(database, name_ids, texts)
    # Names that are not in the file, code -1, read the last place.
    kind_of_text = np.array([*(_call_kind(text) for text in texts), KIND_CODE["annotation"]], np.int8)
    found["kind"] = kind_of_text[found["name"]]
    rows = Rows(found, len(name_ids))
    refuse_repeated(database.path, "host calls", found["id"])
    _name_markers(database, rows, texts, np.unique(name_ids[found["name"] == texts[MARKER]]))
    _add_operators(database, rows, texts)
    drop_unusable(database.path, rows, "host calls", on_device=False)
    return rows


def _operation_kinds(category: np.ndarray, name: np.ndarray, texts: Codes) -> np.ndarray:
    """Kinds of operations, int8: from the type, and for an unknown type `kernel` if it has a name of its own."""
    of_type = np.array([*(_operation_kind(text) for text in texts), NOT_KEPT], np.int8)
    kind = of_type[category]
    kind[(kind == NOT_KEPT) & (name != category)] = KIND_CODE["kernel"]
    return kind


def _operation_kind(category: str) -> int:
    if category in KERNEL_TYPES:
        return KIND_CODE["kernel"]
    if _COPY_TYPE.match(category):
        return KIND_CODE["copy"]
    return KIND_CODE["fill"] if _FILL_TYPE.match(category) else NOT_KEPT


def _call_kind(name: str) -> int:
    """Runtime calls and the tracer's own overhead are `runtime`, everything else are ranges that someone marked."""
    is_call = _RUNTIME_CALL.match(name) or _TRACER_CALL.fullmatch(name)
    return KIND_CODE["runtime" if is_call else "annotation"]


def _name_markers(database: Database, rows: Rows, texts: Codes, name_ids: np.ndarray) -> None:
    """Give markers their text as name; those that PyTorch's emit_nvtx writes for operators become operators."""
    if not len(name_ids):
        return
    condition = f'"apiName_id" IN ({", ".join(map(str, name_ids.tolist()))})'
    markers = database.integers("rocpd_api", ("id", "args_id"), where=condition)
    places, unique = pd.factorize(markers["args_id"])
    found = database.texts("rocpd_ustring" if "rocpd_ustring" in database.tables else "rocpd_string", unique)
    names = np.full(len(unique), texts[MARKER], np.int32)
    kinds = np.full(len(unique), KIND_CODE["annotation"], np.int8)
    for place, number in enumerate(unique.tolist()):
        text = found.get(number)
        operator = _OPERATOR_MARKER.fullmatch(text) if text and ", op_id = " in text else None
        if operator:
            kinds[place] = KIND_CODE["operator"]
        if text:
            names[place] = texts[operator[1] if operator else text]
    call = first_equal(rows["id"], markers["id"])
    rows["name"][call] = names[places]
    rows["kind"][call] = kinds[places]


def _add_operators(database: Database, rows: Rows, texts: Codes) -> None:
    """Take over the operators that `rocpd.autograd` found among the markers and put into a table of its own."""
    if "ext_autogradapi" not in database.tables:
        return
    found = database.integers("ext_autogradapi", ("api_ptr_id", "autogradName_id"))
    name = text_codes(database, found["autogradName_id"], texts)
    call = first_equal(rows["id"], found["api_ptr_id"])
    known = (call >= 0) & (name >= 0)
    rows["name"][call[known]] = name[known]
    rows["kind"][call[known]] = KIND_CODE["operator"]
