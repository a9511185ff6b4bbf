"""Conversion of Arrow tables to records and counters, for rocprofv3 and rocprof 1."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tidyprof.io.csv_files import (
    TEXT,
    CsvFile,
    array_of,
    coded,
    mapped,
    same_text,
    text_codes,
    whole_numbers,
)
from tidyprof.readers.rocprofv3.columns import (
    SIZES,
    TEXTS,
    UNUSED,
    canonical,
    counter_columns,
    is_known,
)
from tidyprof.readers.rocprofv3.recognition import OutputFile
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    NO_TEXT,
    ON_DEVICE,
    Codes,
    by_code,
    counted,
    nullable,
    refined,
    shape_codes,
)
from tidyprof.tables.contract import COUNTER_COLUMNS
from tidyprof.tables.damage import durations, refuse_damage, without_damage
from tidyprof.tables.records import Records

_AGENTS = ("agent", "source_agent", "destination_agent")
_AGENT = re.compile(r"(?:(Agent|GPU|CPU) )?(\d{1,9})")
_DECIMALS = ("value",)
_TIMES = ("start", "end")
# rocprofv3 encloses strings in quotes but doesn't double the quotes inside them (csv_encoder in
# source/lib/output/csv.hpp of https://github.com/ROCm/rocprofiler-sdk).
_QUOTED_MARKS = (
    (
        "a marker or a --kernel-rename range contains quotes, which rocprofv3 doesn't escape, or"
        " the file is damaged"
    ),
    "record with --output-format json or rocpd, or remove the quotes from the markers",
)


class RowFrame:
    """The rows of one file.

    - rows: known columns. Times and identifiers are int64 or null, strings are TEXT, and agents are
      int32.
    - cut: number of incomplete rows, which aren't in `rows`
    - indexed: True if agent numbers count only GPUs, as in `GPU 0` instead of `Agent 4`
    - warnings: warnings about corrected text
    """

    def __init__(self, rows: pa.Table, cut: int, indexed: bool, warnings: list[str]) -> None:
        self.rows = rows
        self.cut = cut
        self.indexed = indexed
        self.warnings = warnings


def read_rows(file: OutputFile, maximum_bytes: int) -> RowFrame:
    """Read all rows of a file that contains traces, samples or counters."""
    csv_file = CsvFile(file.path, file.header, maximum_bytes)
    rows = csv_file.frame(_types(file), quotes=_QUOTED_MARKS)
    warnings = csv_file.warnings + csv_file.open_end()
    complete, cut = csv_file.complete_rows(rows, file.header[-1])
    indexed = False
    columns = _renamed(complete, file)
    for name in _AGENTS:
        if name in columns:
            indexed |= any(text.startswith("GPU") for text in coded(columns[name])[1])
            columns[name] = mapped(columns[name], _agent_number, pa.int32())
    return RowFrame(pa.table(columns), cut, indexed, warnings)


def _types(file: OutputFile) -> dict[str, pa.DataType]:
    """Return the types of the columns to read. The last column is always read, because it shows
    whether a row is complete.
    """
    counters = counter_columns(file.header) if file.role == "wide counters" else []
    types: dict[str, pa.DataType] = {}
    for column in file.header:
        name = canonical(column)
        is_unused = name in UNUSED or not (is_known(column) or column in counters)
        if is_unused and column != file.header[-1]:
            continue
        if is_unused:
            types[column] = pa.string()
        elif name in TEXTS:
            types[column] = TEXT
        elif column in counters or name in _DECIMALS:
            types[column] = pa.float64()
        elif name in SIZES:
            types[column] = pa.uint32()
        else:
            # Identifiers are unsigned 64-bit numbers. A tool may write all ones for `none`.
            types[column] = pa.int64() if name in _TIMES else pa.uint64()
    return types


def _renamed(rows: pa.Table, file: OutputFile) -> dict[str, pa.Array]:
    """Return the columns under tidyprof's names, with identifiers as int64. If several columns have
    the same meaning, only the first one is used.
    """
    counters = counter_columns(file.header) if file.role == "wide counters" else []
    chosen: dict[str, pa.Array] = {}
    for column in rows.column_names:
        name = column if column in counters else canonical(column)
        if name not in chosen and (column in counters or (is_known(column) and name not in UNUSED)):
            values = array_of(rows[column])
            is_identifier = pa.types.is_uint64(values.type) and name != "exec_mask"
            chosen[name] = _signed(values) if is_identifier else values
    return chosen


def _signed(values: pa.Array) -> pa.Array:
    too_large = pc.greater_equal(values, pa.scalar(2**63, pa.uint64()))
    if pc.any(too_large).as_py():
        values = pc.if_else(too_large, None, values)
    # Reinterpret the same bits without a copy.
    return values.view(pa.int64())


def _agent_number(text: str) -> int | None:
    match = _AGENT.fullmatch(text)
    return int(match[2]) if match else None


def counters_long(rows: pa.Table, counters: Iterable[str]) -> pa.Table:
    """Convert a table with one column per counter to one row per dispatch and counter."""
    counters = list(counters)
    others = rows.drop_columns(counters)
    parts = []
    for name in counters:
        has_value = rows[name].is_valid()
        part = others.filter(has_value).append_column(
            "value", rows[name].filter(has_value).cast(pa.float64())
        )
        parts.append(part.append_column("counter", same_text(name, len(part))))
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()


_NAMES = {"launch": "launch_ns", "category": "source_category"}
_TAKEN_APART = ("start", "end", "agent", "source_agent", "destination_agent", "thread", "guid")
_COUNTER_NAMES = {"start": "time_ns", "name": "kernel", "counter": "name", "agent": "device"}
_NO_KIND = -1
CUT_SHORT = "cut short"


def records_of(
    frame: pa.Table,
    path: Path,
    kind_of_domain: Callable[[str], str | None],
    texts: Codes,
    cut: int = 0,
) -> Records:
    """Return the rows that are events.

    - kind_of_domain: function that returns the kind of a domain's records, or None if the records
      aren't events. Copies whose name identifies them as fills get the kind `fill`.
    - cut: number of additional rows that are incomplete

    Raises ProfileReadError if too many rows are unusable.
    """
    start, end = whole_numbers(frame["start"]), whole_numbers(frame["end"])
    category = text_codes(frame["category"], texts)
    category[category == NO_TEXT] = texts[""]
    name = text_codes(frame["name"], texts)
    records = Records({"start_ns": start, "duration_ns": durations(start, end), "name": name})
    records["source_category"] = category
    records["kind"] = _kinds(category, name, kind_of_domain, texts)
    # A marker can be an empty string. Only an instruction that couldn't be decoded has no string.
    name[(name == NO_TEXT) & (records["kind"] != KIND_CODE["sample"])] = texts[""]
    for column in frame.column_names:
        target = _NAMES.get(column, column)
        is_done = column in _TAKEN_APART or target in records
        if not is_done and not column.startswith(("grid_", "block_")):
            is_text = pa.types.is_dictionary(frame[column].type)
            records[target] = (
                text_codes(frame[column], texts) if is_text else whole_numbers(frame[column])
            )
    for shape in ("grid", "block"):
        sizes = [
            whole_numbers(frame[f"{shape}_{axis}"])
            for axis in "xyz"
            if f"{shape}_{axis}" in frame.column_names
        ]
        if sizes:
            records[shape] = shape_codes(sizes, texts)
    _add_places(records, frame, texts)
    return _sound(records, path, cut, texts)


def _sound(records: Records, path: Path, cut: int, texts: Codes) -> Records:
    is_event = records["kind"] != _NO_KIND
    records.not_kept += counted(records["source_category"][~is_event], texts)
    records.keep(is_event)
    refuse_damage(path, "rows", Counter({CUT_SHORT: cut}), len(records) + cut)
    records.dropped += Counter({CUT_SHORT: cut})
    faults = {}
    if "dispatch_id" in records and "exec_mask" not in records:
        faults["with a repeated dispatch ID"] = _is_repeated(records)
    without_damage(path, records, faults)
    return records


def _is_repeated(records: Records) -> np.ndarray:
    """Return a mask of the dispatches with the same number as an earlier dispatch. Numbers are
    unique within a process, so such a dispatch is a copy or comes from another process.
    """
    number = records["dispatch_id"]
    frame = pd.DataFrame({"number": number, "guid": records.get("guid")})
    return frame.duplicated().to_numpy() & (number != ABSENT)


def _kinds(
    category: np.ndarray,
    name: np.ndarray,
    kind_of_domain: Callable[[str], str | None],
    texts: Codes,
) -> np.ndarray:
    of_category = [KIND_CODE.get(kind_of_domain(text) or "", _NO_KIND) for text in texts]
    kind = by_code(of_category, category, _NO_KIND, np.int8)
    is_fill = by_code(
        (bool(re.search("fill|memset", text, re.IGNORECASE)) for text in texts), name, False
    )
    kind[(kind == KIND_CODE["copy"]) & is_fill] = KIND_CODE["fill"]
    return refined(kind, name, texts)


def _add_places(records: Records, frame: pa.Table, texts: Codes) -> None:
    """Add devices and threads. A copy belongs to its GPU. If the source and the target are GPUs, it
    belongs to the target.

    For a host call, the agent is the owner of the memory. Device work has no thread, because the
    tool records the thread that launched the work.
    """
    on_device = ON_DEVICE[records["kind"]]
    if {"source_agent", "destination_agent"} <= set(frame.column_names):
        source = whole_numbers(frame["source_agent"])
        target = whole_numbers(frame["destination_agent"])
        # An agent may be a CPU, so the name of the copy shows which end is the GPU.
        to_device = by_code(("TO_DEVICE" in text for text in texts), records["name"], False)
        to_host = by_code(("DEVICE_TO_HOST" in text for text in texts), records["name"], False)
        records["device"] = np.where(to_device, target, np.where(to_host, source, ABSENT))
        records["source_device"], records["destination_device"] = source, target
    elif "agent" in frame.column_names:
        agent = whole_numbers(frame["agent"])
        # Graph launches are annotations with an agent.
        is_of_device = on_device | (records["kind"] == KIND_CODE["annotation"])
        records["device"] = np.where(is_of_device, agent, ABSENT)
        if not on_device.all():
            records["memory_device"] = np.where(on_device, ABSENT, agent)
    if "thread" in frame.column_names:
        thread = whole_numbers(frame["thread"])
        records["thread"] = np.where(on_device, ABSENT, thread)
        records["launch_thread"] = np.where(on_device, thread, ABSENT)
    if "guid" in frame.column_names:
        codes = text_codes(frame["guid"], texts).astype(np.int64)
        records["guid"] = np.where(codes == NO_TEXT, ABSENT, codes)


def counters_of(
    frame: pa.Table, path: Path, cut: int = 0
) -> tuple[pd.DataFrame, Counter[str], list[str]]:
    """Return one row per dispatch and counter with the columns COUNTER_COLUMNS. Also return the
    number of values that were left out for each reason, and warnings.

    Values that aren't numbers count as damage, like impossible times. Raises ProfileReadError if
    too many values aren't numbers.
    """
    start, end = (
        whole_numbers(frame[name]) if name in frame.column_names else None
        for name in ("start", "end")
    )
    has_times = start is not None and end is not None
    count = len(frame)
    duration = durations(start, end) if has_times else np.zeros(count, np.int64)
    # In ROCm 6.2, counters have no times but are in dispatch order. The dispatch number replaces
    # the start time.
    order = np.maximum(whole_numbers(frame["dispatch_id"]), 0) + 1
    records = Records(
        {"start_ns": order if start is None or end is None else start, "duration_ns": duration}
    )
    records["kind"] = np.full(count, KIND_CODE["kernel"], np.int8)
    value = frame["value"].to_numpy()
    records.columns |= _told_apart(frame) | {"value": value.view(np.int64), "row": np.arange(count)}
    wrong = ~np.isfinite(value) | frame["counter"].is_null().to_numpy()
    refuse_damage(path, "rows", Counter({CUT_SHORT: cut}), count + cut)
    without_damage(
        path, records, {"whose value isn't a number": wrong, "whose value is negative": value < 0}
    )
    records.dropped += Counter({CUT_SHORT: cut})
    frame = frame.take(pa.array(records["row"]))
    table = {
        _COUNTER_NAMES.get(name, name): _counter_column(frame, name)
        for name in frame.column_names
        if name != "end"
    }
    table["value"] = value[records["row"]]
    if end is not None:
        table["duration_ns"] = nullable(records["duration_ns"], "Int64")
    warnings = []
    if start is None:
        table["time_ns"] = np.zeros(len(frame), np.int64)
        warnings.append(
            f"{path.name}: the counters have no times, because ROCm 6.2 and earlier don't write"
            " them. Their time_ns is 0."
        )
    known = {name: values for name, values in table.items() if name in COUNTER_COLUMNS}
    return pd.DataFrame(known), records.dropped, warnings


def _told_apart(frame: pa.Table) -> dict[str, np.ndarray]:
    """Return the columns that distinguish counter values, converted to numbers."""
    columns = {
        name: array_of(frame[name])
        for name in frame.column_names
        if name not in ("start", "end", "value")
    }
    return {
        name: whole_numbers(values) if pa.types.is_integer(values.type) else coded(values)[0]
        for name, values in columns.items()
    }


def _counter_column(frame: pa.Table, name: str) -> object:
    dtype = COUNTER_COLUMNS.get(_COUNTER_NAMES.get(name, name))
    if dtype == "category":
        codes, labels = coded(frame[name])
        return pd.Categorical.from_codes(codes, labels)
    if dtype is None or dtype == "float64":
        return None
    numbers = whole_numbers(frame[name])
    return numbers if dtype == "int64" else nullable(numbers, dtype)
