"""The events of a trace as text: operators, calls, device work, the links between them, and the
names of tracks.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from gpumodel.play.waits import GATHER, SCATTER
from gpumodel.writers.common.device_work import COPY_KINDS, grid_of_call
from gpumodel.writers.kineto.window import Recording, microseconds

CALL_NUMBERS = {
    "hipLaunchKernel": 107,
    "hipExtLaunchKernel": 62,
    "hipExtModuleLaunchKernel": 65,
    "hipMemcpyAsync": 134,
    "hipMemcpyWithStream": 153,
    "hipMemsetAsync": 159,
    "hipDeviceSynchronize": 48,
    "hipStreamWaitEvent": 200,
    "hipEventSynchronize": 60,
    "hipStreamIsCapturing": 290,
    "hipPointerGetAttributes": 182,
    "hipGetDevicePropertiesR0600": 370,
}
"""Call -> its `cid` in recorded traces of ROCm 6.4; all other calls are written without one."""

COPY_LETTERS = {"HostToDevice": "HtoD", "DeviceToHost": "DtoH", "DeviceToDevice": "DtoD"}
"""Direction of a copy -> the kind that its event on the device states."""

_TYPE_NAMES = {
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "int64": "Long",
    "int32": "Int",
    "uint8": "Byte",
    "bool": "Bool",
}
_GPU_ROWS = 16
_GPU_SORT_INDEX = 5_000_000
_SPANS_SORT_INDEX = 536_870_912
"""As Kineto writes them: how many GPUs get a row, whether they exist or not, and the sort indices
of the rows of GPUs and of the profiler's own spans.
"""


def event_texts(recording: Recording) -> str:
    """All events of the recording, with commas between them, in the order of Kineto."""
    events = [
        *_host_events(recording),
        *_forward_backward_links(recording),
        *_call_events(recording),
        *_device_events(recording),
        *_device_annotations(recording),
        *_track_names(recording),
        *_trailer(recording),
    ]
    return ",\n".join(events)


def _quoted(texts: pd.Series) -> list[str]:
    """The texts as JSON; each distinct one is encoded once."""
    known = {text: json.dumps(text, ensure_ascii=False) for text in texts.unique()}
    return [known[text] for text in texts.tolist()]


def _times(recording: Recording, table: pd.DataFrame) -> tuple[list[str], list[str]]:
    return recording.microseconds(table["start_ns"]), microseconds(table["duration_ns"])


def _complete(
    category: str, name: str, pid: int, tid: int, start: str, duration: str, arguments: str
) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": {name}, "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {start}, "dur": {duration},\n    "args": {{\n      {arguments}\n    }}\n  }}'
    )


def _flow(phase: str, number: int, pid: int, tid: int, time: str, category: str) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {time},\n'
        f'    "cat": "{category}", "name": "{category}"{end}\n  }}'
    )


def _host_events(recording: Recording) -> list[str]:
    """Operators and annotations."""
    host, pid = recording.host, recording.rank.process_id
    starts, durations = _times(recording, host)
    collectives = _collective_arguments(recording)
    names = _quoted(host["name"])
    shapes = _shape_arguments(host) if recording.record_shapes else [""] * len(host)
    # Kineto has its own numbers for threads: an operator of the backward pass states 1, the thread
    # of its forward operator; all others state 0.
    is_backward = host["thread_id"] == recording.rank.autograd_thread_id
    forward_threads = is_backward.astype(int).tolist()
    events = []
    for index, event in enumerate(host.itertuples(index=False)):
        arguments = f'"External id": {event.external_id},"Record function id": 0'
        if not pd.isna(event.sequence_number):
            arguments += f', "Sequence number": {event.sequence_number}'
            arguments += f', "Fwd thread id": {forward_threads[index]}'
        if names[index] == '"record_param_comms"' and event.operator_id in collectives:
            arguments += f", {collectives[event.operator_id]}"
        arguments += f'{shapes[index]}, "Ev Idx": {index}'
        category = "user_annotation" if event.is_annotation else "cpu_op"
        events.append(
            _complete(
                category,
                names[index],
                pid,
                event.thread_id,
                starts[index],
                durations[index],
                arguments,
            )
        )
    return events


def _shape_arguments(host: pd.DataFrame) -> list[str]:
    """Shapes and types of the inputs; empty for annotations, which have none."""
    texts = []
    for shapes, types in host[["input_shapes", "input_types"]].itertuples(index=False):
        if isinstance(shapes, tuple):
            texts.append(f', "Input type": {json.dumps(types)}, "Input Dims": {json.dumps(shapes)}')
        else:
            texts.append("")
    return texts


def _forward_backward_links(recording: Recording) -> list[str]:
    """Arrows from the operator that recorded a node of autograd's graph to the backward pass of the
    node.
    """
    # Nested operators share a sequence number; the last of them, the innermost, made the node.
    host = recording.host[recording.host["sequence_number"].notna()]
    on_autograd = host["thread_id"] == recording.rank.autograd_thread_id
    forward = host[~on_autograd].drop_duplicates("sequence_number", keep="last")
    is_node = host["name"].str.contains(r"Backward\d*$")
    backward = host[on_autograd & is_node].drop_duplicates("sequence_number", keep="last")
    pairs = forward.merge(backward, on="sequence_number", suffixes=("", "_backward"))
    starts = recording.microseconds(pairs["start_ns"])
    ends = recording.microseconds(pairs["start_ns_backward"])
    threads = zip(
        pairs["thread_id"].tolist(), pairs["thread_id_backward"].tolist(), starts, ends, strict=True
    )
    pid, events = recording.rank.process_id, []
    for number, (tid, backward_tid, start, end) in enumerate(threads, start=1):
        events.append(_flow("s", number, pid, tid, start, "fwdbwd"))
        events.append(_flow("f", number, pid, backward_tid, end, "fwdbwd"))
    return events


def _call_events(recording: Recording) -> list[str]:
    """HIP calls, each followed by its side of a link: the start if it launched work, else, as in
    Kineto, an end.
    """
    calls, pid = recording.calls, recording.rank.process_id
    launched = _launch_arguments(recording)
    starts, durations = _times(recording, calls)
    columns = zip(
        calls["name"].tolist(),
        calls["thread_id"].tolist(),
        starts,
        durations,
        calls["external_id"].tolist(),
        calls["correlation_id"].tolist(),
        strict=True,
    )
    events = []
    for name, tid, start, duration, external, correlation in columns:
        kernel, details = launched.get(correlation, ("", ""))
        arguments = ("" if pd.isna(external) else f'"External id": {external}, ') + kernel
        arguments += f'"cid": {CALL_NUMBERS[name]}, ' if name in CALL_NUMBERS else ""
        arguments += f'"correlation": {correlation}{details}'
        events.append(
            _complete("cuda_runtime", json.dumps(name), pid, tid, start, duration, arguments)
        )
        events.append(
            _flow("s" if correlation in launched else "f", correlation, pid, tid, start, "ac2g")
        )
    return events


def _launch_arguments(recording: Recording) -> dict[int, tuple[str, str]]:
    """Correlation id of each call that launched work -> what it states of the kernel or copy,
    before its `cid` and at its end.
    """
    work = recording.work[recording.work["is_launched"]]
    grids = _triples(grid_of_call(work))
    blocks = _triples(work[["workgroup_x", "workgroup_y", "workgroup_z"]])
    columns = zip(
        work["correlation_id"].tolist(),
        work["kind"].tolist(),
        _quoted(work["name"]),
        grids,
        blocks,
        work["lds_bytes"].tolist(),
        work["copy_direction"].tolist(),
        work["copy_bytes"].tolist(),
        strict=True,
    )
    found = {}
    for correlation, kind, name, grid, block, shared, direction, size in columns:
        if kind == "copy":
            details = (
                f', "bytes": "{size}", "kind": "{COPY_KINDS[direction]}"'
                if direction in COPY_KINDS
                else ""
            )
            found[correlation] = ("", details)
        elif kind == "fill":
            found[correlation] = ("", "")
        else:
            found[correlation] = (
                f'"kernel": {name}, ',
                f', "grid": {grid}, "block": {block}, "shared memory": {shared}',
            )
    return found


def _triples(sizes: pd.DataFrame) -> list[str]:
    return [
        f"[{x}, {y}, {z}]"
        for x, y, z in zip(*(sizes[column].tolist() for column in sizes), strict=True)
    ]


def _device_events(recording: Recording) -> list[str]:
    """Kernels, copies and fills, each followed by the end of its link."""
    work, device = recording.work, recording.rank.agent
    starts, durations = _times(recording, work)
    details = _device_arguments(recording)
    columns = zip(
        work["category"].tolist(),
        _quoted(work["name"]),
        work["stream"].tolist(),
        starts,
        durations,
        work["external_id"].tolist(),
        work["correlation_id"].tolist(),
        details,
        strict=True,
    )
    events = []
    for category, name, track, start, duration, external, correlation, detail in columns:
        known = "" if pd.isna(external) else f'"External id": {external}, '
        arguments = (
            f'{known}"device": {device}, "stream": {track}, "correlation": {correlation}, {detail}'
        )
        events.append(_complete(category, name, device, track, start, duration, arguments))
        events.append(_flow("f", correlation, device, track, start, "ac2g"))
    return events


def _device_arguments(recording: Recording) -> list[str]:
    """What device work states after its correlation: its kind, its grid where the launch was
    recorded, and its collective.
    """
    work = recording.work
    grids = _triples(grid_of_call(work))
    blocks = _triples(work[["workgroup_x", "workgroup_y", "workgroup_z"]])
    collectives = _collective_arguments(recording)
    columns = zip(
        work["category"].tolist(),
        work["copy_direction"].tolist(),
        grids,
        blocks,
        work["is_launched"].tolist(),
        work["operator_id"].tolist(),
        work["collective"].tolist(),
        strict=True,
    )
    texts = []
    for category, direction, grid, block, launched, operator, collective in columns:
        if category == "gpu_memcpy":
            texts.append(f'"kind": "{COPY_LETTERS.get(direction, "")}"')
            continue
        if category == "gpu_memset":
            texts.append('"kind": "Device"')
            continue
        text = '"kind": "Dispatch Kernel"' + (
            f', "grid": {grid}, "block": {block}' if launched else ""
        )
        if collective and launched and operator in collectives:
            text += f", {collectives[operator]}"
        texts.append(text)
    return texts


def _collective_arguments(recording: Recording) -> dict[Any, str]:
    """operator_id of the launch of a collective, and of that launch's owner -> what torch attaches
    to the collective.
    """
    collectives = recording.work[recording.work["collective"] != ""]
    shapes = dict(recording.rank.operators[["operator_id", "input_shapes"]].itertuples(index=False))
    size = len(recording.run.ranks)
    found = {}
    table = collectives[["operator_id", "collective", "data_type"]]
    for operator, collective, data_type in table.dropna().itertuples(index=False):
        members: dict[str, Any] = {"Collective name": collective}
        if shapes.get(operator):
            elements = math.prod(shapes[operator][0])
            received = {GATHER: elements * size, SCATTER: elements // size}.get(
                collective, elements
            )
            members |= {"In msg nelems": elements, "Out msg nelems": received}
        members |= {"Group size": size}
        if data_type in _TYPE_NAMES:
            members["dtype"] = _TYPE_NAMES[data_type]
        members |= {"In split size": "[]", "Out split size": "[]", "Process Group Name": "0"}
        members |= {
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(size))),
        }
        found[operator] = found[recording.owner_of_operator.get(operator, operator)] = json.dumps(
            members
        )[1:-1]
    return found


def _device_annotations(recording: Recording) -> list[str]:
    """Annotations projected onto the device: on each stream an annotation spans all work of which
    it is the innermost one.
    """
    work = recording.work[recording.work["is_launched"]]
    annotations = recording.host[recording.host["is_annotation"]]
    external = innermost(
        annotations, work["thread_id"].to_numpy(), work["call_start_ns"].to_numpy("int64")
    )
    end_ns = work["start_ns"] + work["duration_ns"]
    known = work.assign(annotation=external, end_ns=end_ns)[external > 0]
    hulls = known.groupby(["annotation", "stream"]).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
    )
    hulls = hulls.reset_index()
    names = hulls["annotation"].map(annotations.set_index("external_id")["name"])
    # Kineto's bar is one nanosecond longer at both ends than what it encloses.
    starts = recording.microseconds(hulls["start_ns"] - 1)
    durations = microseconds(hulls["end_ns"] - hulls["start_ns"] + 2)
    columns = zip(
        _quoted(names),
        hulls["stream"].tolist(),
        starts,
        durations,
        hulls["annotation"].tolist(),
        strict=True,
    )
    return [
        _complete(
            "gpu_user_annotation",
            name,
            recording.rank.agent,
            track,
            start,
            duration,
            f'"External id": {number}',
        )
        for name, track, start, duration, number in columns
    ]


def innermost(annotations: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """External id of the innermost annotation around each time on its thread, 0 for none.

    annotations -- thread_id, start_ns, end_ns, external_id, with outer ones before those within
                   them: so an inner one overwrites an outer one.
    """
    found = np.zeros(len(times), np.int64)
    columns = ["thread_id", "start_ns", "end_ns", "external_id"]
    for thread, table in annotations[columns].groupby("thread_id"):
        rows = np.flatnonzero(threads == thread)
        rows = rows[np.argsort(times[rows], kind="stable")]
        first = np.searchsorted(times[rows], table["start_ns"].to_numpy(), "left")
        last = np.searchsorted(times[rows], table["end_ns"].to_numpy(), "right")
        for begin, end, external in zip(first, last, table["external_id"], strict=True):
            found[rows[begin:end]] = external
    return found


def _metadata(
    kind: str, time: str, pid: int | str, tid: int, argument: str, value: str | int
) -> str:
    quoted = json.dumps(pid)
    return (
        f'  {{\n    "name": "{kind}", "ph": "M", "ts": {time}, "pid": {quoted}, "tid": {tid},\n'
        f'    "args": {{\n      "{argument}": {json.dumps(value)}\n    }}\n  }}'
    )


def _track_names(recording: Recording) -> list[str]:
    """Names of processes, devices, threads and streams, and their order in a viewer."""
    (time,) = recording.microseconds(pd.Series([recording.span[0]]))
    rank = recording.rank
    rows = [(rank.process_id, "CPU", rank.process_id)]
    rows += [(gpu, f"GPU {gpu}", _GPU_SORT_INDEX + gpu) for gpu in range(_GPU_ROWS)]
    events = []
    for pid, label, order in rows:
        events.append(_metadata("process_name", time, pid, 0, "name", "python3"))
        events.append(_metadata("process_labels", time, pid, 0, "labels", label))
        events.append(_metadata("process_sort_index", time, pid, 0, "sort_index", order))
    tracks = [
        (recording.rank.agent, track, f"stream {track} ")
        for track in sorted(set(recording.work["stream"].tolist()))
    ]
    tracks += [(rank.process_id, rank.main_thread_id, f"thread {rank.main_thread_id} (python3)")]
    tracks += [
        (
            rank.process_id,
            rank.autograd_thread_id,
            f"thread {rank.autograd_thread_id} (pt_autograd_0)",
        )
    ]
    for pid, tid, name in tracks:
        events.append(_metadata("thread_name", time, pid, tid, "name", name))
        events.append(_metadata("thread_sort_index", time, pid, tid, "sort_index", tid))
    return events


def _trailer(recording: Recording) -> list[str]:
    """The profiler's own bar and the marks of the recorded window."""
    start_ns, end_ns = recording.span
    start, end = recording.microseconds(pd.Series([start_ns, end_ns]))
    (duration,) = microseconds(pd.Series([end_ns - start_ns]))
    return [
        (
            f'  {{\n    "ph": "X", "cat": "Trace", "ts": {start}, "dur": {duration},\n'
            '    "pid": "Spans", "tid": "PyTorch Profiler",\n    "name": "PyTorch Profiler (0)",\n'
            '    "args": {\n      "Op count": 0\n    }\n  }'
        ),
        _metadata("process_sort_index", start, "Spans", 0, "sort_index", _SPANS_SORT_INDEX),
        (
            '  {\n    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",\n'
            f'    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {start}\n  }}'
        ),
        (
            '  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n    "pid": "", "tid":'
            f' "", "ts": {end}\n  }}'
        ),
    ]
