"""Recognition of rocprofv3's files. The files are grouped by process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import ByteStream, head_or_nothing
from tidyprof.readers.columns import HEAD_BYTES, column_table, foreign, header_of

DEEPEST = 3
"""Number of folder levels to search, because rocprofv3 creates folders such as `pass_1/HOST/`."""

_DATA_NAME = re.compile(r"\.(csv|json)(\.gz|\.zst)?$", re.IGNORECASE)
_SUBJECTS = (
    "kernel|hip_api|hip_runtime|hip_compiler|hip_compile|hip|hsa_api|hsa_core_api|hsa|marker_api"
    "|marker|memory_copy|memory_allocation|scratch_memory|rccl_api|rccl|rocdecode_api|rocjpeg_api"
    "|hipfile_api|rocshmem_api|ompt|domain|counter_collection|pc_sampling_host_trap"
    "|pc_sampling_stochastic|graph_launch|hip_event|kfd"
)
_OUTPUT_NAME = re.compile(
    rf"(?:(?P<prefix>.*?)_)?(?P<subject>(?:{_SUBJECTS})(?=_(?:trace|stats)$)|agent_info$"
    r"|counter_collection$|pc_sampling_\w+$|streaming_performance_monitor$|results$)",
    re.DOTALL,
)
_PROCESS = re.compile(r"(?:^|[^a-z])pid[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
_JSON_MARK = b'"rocprofiler-sdk-tool"'
_OTHER_TOOLS_MARK = "sysinfo.csv"


@dataclass(frozen=True)
class OutputFile:
    """A file from rocprofv3.

    - contents: `json`, or the contents of a CSV file (see `tables.toml`)
    - header: column names of a CSV file
    - prefix: folder and common prefix of the names of a process's files
    - subject: subject in the file name, such as `kernel` or `hip_api`
    """

    path: Path
    contents: str
    header: list[str]
    prefix: Path
    subject: str


def output_file(path: Path, head: bytes) -> OutputFile | None:
    """Return the file that starts with `head`, or None if it isn't from rocprofv3."""
    name = _DATA_NAME.sub("", path.name)
    match = _OUTPUT_NAME.match(name)
    prefix, subject = (match["prefix"], match["subject"]) if match else (name, name)
    header: list[str] = []
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        contents = "json" if _JSON_MARK in head[:1024] else None
    else:
        header = header_of(head)
        contents = column_table("rocprofv3").contents_of(header)
    stem = path.parent / prefix if prefix else path.parent
    return OutputFile(path, contents, header, stem, subject) if contents else None


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if `path` is a rocprofv3 file that starts with `head`, or a folder that contains
    such a file.
    """
    if not path.is_dir():
        return output_file(path, head) is not None
    if (path / _OTHER_TOOLS_MARK).exists():
        return False
    return any(output_file(file, head_or_nothing(file, HEAD_BYTES)) for file in _candidates(path))


def find_processes(
    path: Path, only: Collection[Path] = ()
) -> tuple[dict[Path, list[OutputFile]], dict[Path, str]]:
    """Return the files at a path, grouped by the common prefix of a process's files. Also return
    the unsupported files in the folder, and explain why they are unsupported.

    - path: path to a file or to a folder.
    - only: files in the folder to check. If empty, all files are checked.

    Raises ProfileReadError if there is no file.
    """
    candidates = [file for file in _candidates(path) if not only or file in only]
    processes, others = grouped_files(path, candidates, output_file, "rocprofv3")
    if not processes:
        raise ProfileReadError(
            path,
            f"none of the {len(candidates)} CSV or JSON files is from rocprofv3",
            "the path is wrong, ROCm 7 wrote a database (*_results.db, its default), or the run"
            " ended before rocprofv3 wrote its results",
            "check the path, and record with --output-format csv, or read the database",
        )
    return dict(sorted(processes.items())), others


def grouped_files(
    path: Path,
    candidates: Iterable[Path],
    known: Callable[[Path, bytes], OutputFile | None],
    tool: str,
    reason: Callable[[bytes], str] = lambda head: FOREIGN,
) -> tuple[dict[Path, list[OutputFile]], dict[Path, str]]:
    """Return the files of a tool, grouped by prefix, and a reason for each of the other files.

    - known: a function that returns the file that starts with some bytes
    - reason: a function that returns why a file that starts with some bytes isn't read

    Raises ProfileReadError if the path or an empty file isn't from the tool.
    """
    groups: dict[Path, list[OutputFile]] = {}
    others: dict[Path, str] = {}
    for file in candidates:
        head = ByteStream(file).head(HEAD_BYTES)
        if own := known(file, head):
            groups.setdefault(own.prefix, []).append(own)
        elif reason(head) == FOREIGN and (file == path or not head.strip()):
            # An empty file with such a name may be a lost trace, so it isn't ignored.
            raise foreign(file, head, tool, f"pass a file or folder from {tool}")
        else:
            others[file] = reason(head)
    return groups, others


def stated_process(prefix: Path) -> int | None:
    """Return the process number in a prefix, such as `pid41`. By default, a prefix consists only of
    the process number. In a folder's name, a number can mean anything.
    """
    name = "" if prefix.is_dir() else prefix.name
    match = re.fullmatch(r"(\d{1,9})", name) or _PROCESS.search(prefix.name)
    return int(match[1]) if match else None


def _candidates(path: Path) -> Iterator[Path]:
    """Yield the path of a file. For a folder, yield the CSV and JSON files in it and up to DEEPEST
    levels below it, in order. Links to folders and hidden folders are skipped.
    """
    if not path.is_dir():
        yield path
    for place, folders, names in os.walk(path):
        is_deepest = len(Path(place).relative_to(path).parts) >= DEEPEST
        folders[:] = [] if is_deepest else sorted(name for name in folders if name[0] != ".")
        files = (Path(place) / name for name in sorted(names) if _DATA_NAME.search(name))
        yield from (file for file in files if file.is_file())
