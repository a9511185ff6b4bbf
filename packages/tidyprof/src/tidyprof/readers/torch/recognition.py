"""Recognition of torch.profiler traces."""

from __future__ import annotations

import re
from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing

_TRACE_NAME = re.compile(r"\.json(\.gz|\.zst)?$", re.IGNORECASE)
_MARKS = re.compile(
    rb'"(schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:'
    rb'|"cat"\s*:\s*"(cpu_op|user_annotation|python_function|kernel|gpu_\w+'
    rb'|(cuda|xpu)_(runtime|driver)|Operator|Runtime|Kernel|Memcpy|Memset)"'
)


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if text that starts with `head` is a torch.profiler trace, or if a folder
    contains such a trace.
    """
    if path.is_dir():
        return any(is_trace(head_or_nothing(file, HEAD_BYTES)) for file in candidates(path))
    return is_trace(head)


def is_trace(head: bytes) -> bool:
    """Return True if a file that starts with `head` is a torch.profiler trace."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and bool(_MARKS.search(head))


def candidates(folder: Path) -> list[Path]:
    """Return the files in a folder whose names look like trace names."""
    files = (*folder.glob("*"), *folder.glob("*rank*/*"))
    return sorted(file for file in files if _TRACE_NAME.search(file.name) and file.is_file())
