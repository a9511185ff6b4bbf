"""Whether a file is a trace of torch.profiler."""

from __future__ import annotations

import re
from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing
from tidyprof.tables.profiles import rank_in_name

_TRACE_NAME = re.compile(r"\.json(\.gz|\.zst)?$", re.IGNORECASE)
_MARKS = re.compile(
    rb'"(schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:'
    rb'|"cat"\s*:\s*"(cpu_op|user_annotation|python_function|kernel|gpu_\w+|(cuda|xpu)_(runtime|driver)|Operator|Runtime|Kernel'
    rb'|Memcpy|Memset)"'
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether text that starts with `head` is a trace of torch.profiler; of a folder, whether it holds one."""
    if path.is_dir():
        return any(is_trace(head_or_nothing(file, HEAD_BYTES)) for file in candidates(path))
    return is_trace(head)


def is_trace(head: bytes) -> bool:
    """Whether a file that starts with `head` is one."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and bool(_MARKS.search(head))


def traces_of_ranks(folder: Path) -> list[Path]:
    """The traces of a folder that has several; one that is empty at its start, too, if its name has a rank."""
    if not folder.is_dir():
        return []
    heads = {file: head_or_nothing(file, HEAD_BYTES) for file in candidates(folder)}
    if not any(is_trace(head) for head in heads.values()):
        return []
    chosen = [
        file
        for file, head in heads.items()
        if is_trace(head) or (not head.strip() and rank_in_name(file, folder) is not None)
    ]
    return chosen if len(chosen) > 1 else []


def candidates(folder: Path) -> list[Path]:
    """Files in a folder that are named as traces are."""
    files = (*folder.glob("*"), *folder.glob("*rank*/*"))
    return sorted(file for file in files if _TRACE_NAME.search(file.name) and file.is_file())
