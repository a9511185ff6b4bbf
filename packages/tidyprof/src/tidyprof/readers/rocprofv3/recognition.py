"""Recognition of rocprofv3's files. The files are grouped by process."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidyprof.errors import EMPTY, FOREIGN, MISSING, ProfileReadError
from tidyprof.io.byte_stream import ByteStream, head_or_nothing
from tidyprof.io.guard import no_files
from tidyprof.readers.rocprofv3.columns import header_of, role_of

HEAD_BYTES = 2**16
"""Number of uncompressed bytes at the start of a file that are enough to recognize its format."""

DEEPEST = 3
"""Number of folder levels to search, because rocprofv3 creates folders such as `pass_1/HOST/`."""

_DATA_NAME = re.compile(r"\.(csv|json)(\.gz|\.zst)?$", re.IGNORECASE)
_SUBJECTS = (
    "kernel|hip_api|hip_runtime|hip_compiler|hip_compile|hip|hsa_api|hsa_core_api|hsa|marker_api"
    "|marker|memory_copy"
    "|memory_allocation|scratch_memory|rccl_api|rccl|rocdecode_api|rocjpeg_api|hipfile_api"
    "|rocshmem_api|ompt|domain"
    "|counter_collection|pc_sampling_host_trap|pc_sampling_stochastic|graph_launch|hip_event|kfd"
)
_OUTPUT_NAME = re.compile(
    rf"(?:(?P<prefix>.*?)_)?(?P<subject>{_SUBJECTS})_(?:trace|stats)"
    r"|(?:(?P<prefix_only>.*?)_)?(?:agent_info|counter_collection|pc_sampling_\w+"
    r"|streaming_performance_monitor|results)",
    re.DOTALL,
)
_RANK = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
_PROCESS = re.compile(r"(?:^|[^a-z])pid[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER_ALONE = re.compile(r"\d{1,9}")
_JSON_MARK = b'"rocprofiler-sdk-tool"'
_OTHER_TOOLS_MARKS = ("sysinfo.csv",)


@dataclass(frozen=True)
class OutputFile:
    """A file from rocprofv3.

    - role: one of the roles from `role_of`, or `json`
    - header: column names of a CSV file
    - prefix: folder and common prefix of the names of a process's files
    - subject: subject in the file name, such as `kernel` or `hip_api`
    """

    path: Path
    role: str
    header: list[str]
    prefix: Path
    subject: str


@dataclass(frozen=True)
class ProcessFiles:
    """The files of one process. The process number and the rank are None if the file names don't
    contain them.
    """

    prefix: Path
    files: tuple[OutputFile, ...]
    rank: int | None
    process: int | None

    def of_role(self, *roles: str) -> list[OutputFile]:
        """Return the files that have one of these roles."""
        return [file for file in self.files if file.role in roles]


def output_file(path: Path, head: bytes) -> OutputFile | None:
    """Return the file that starts with `head`, or None if it isn't from rocprofv3."""
    name = _DATA_NAME.sub("", path.name)
    match = _OUTPUT_NAME.fullmatch(name)
    prefix = (match["prefix"] if match["subject"] else match["prefix_only"]) if match else name
    subject = match["subject"] if match and match["subject"] else name
    stem = path.parent / prefix if prefix else path.parent
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return OutputFile(path, "json", [], stem, subject) if _JSON_MARK in head[:1024] else None
    header = header_of(head) or []
    role = role_of(header) if header else None
    return OutputFile(path, role, header, stem, subject) if role else None


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if `path` is a rocprofv3 file that starts with `head`, a folder that contains
    such a file, or a prefix of such a file's name.
    """
    if not path.exists():
        return any(_recognized(file) is not None for file in _with_prefix(path))
    if not path.is_dir():
        return output_file(path, head) is not None
    if any((path / name).exists() for name in _OTHER_TOOLS_MARKS):
        return False
    return any(_recognized(file) is not None for file in _candidates(path))


def _recognized(path: Path) -> OutputFile | None:
    return output_file(path, head_or_nothing(path, HEAD_BYTES))


def find_processes(
    path: Path, only: Collection[Path] = ()
) -> tuple[list[ProcessFiles], dict[Path, str]]:
    """Return the files at a path, grouped by process. Also return the unsupported files in the
    folder, and explain why they are unsupported.

    - path: path to a file, to a folder, or to a folder plus the common prefix of the file names.
      For example, the prefix `out/908` matches `out/908_kernel_trace.csv`.
    - only: files in the folder to check. If empty, all files are checked.

    Raises ProfileReadError if there is no file.
    """
    if path.is_dir():
        candidates, root = [file for file in _candidates(path) if not only or file in only], path
    elif path.exists():
        candidates, root = [path], path.parent
    else:
        candidates, root = _with_prefix(path), path.parent
    files, others = [], {}
    for file in candidates:
        head = ByteStream(file).head(HEAD_BYTES)
        known = output_file(file, head)
        # An empty file with such a name may be a lost trace, so it isn't ignored.
        if known is None and (not head.strip() or file == path):
            raise _foreign(file, head)
        if known is None:
            others[file] = FOREIGN
        else:
            files.append(known)
    if not files:
        raise _nothing(path, candidates)
    if path.is_dir() and not only:
        others |= no_files(dict.fromkeys([path, *(file.path.parent for file in files)]))
    return _by_process(files, root), others


def may_hold_kernels(path: Path) -> bool:
    """Return True if rocprofv3 uses this file name for a kernel trace or for complete results."""
    match = _OUTPUT_NAME.fullmatch(_DATA_NAME.sub("", path.name))
    return match is not None and (
        match["subject"] == "kernel" or _DATA_NAME.sub("", path.name).endswith("results")
    )


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield the CSV and JSON files in a folder and up to DEEPEST levels below it, in order. Links
    to folders and hidden folders are skipped.
    """
    for place, folders, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if name[0] != ".") if depth < DEEPEST else []
        for name in sorted(names):
            if _DATA_NAME.search(name) and (Path(place) / name).is_file():
                yield Path(place) / name


def _with_prefix(prefix: Path) -> list[Path]:
    """Return the files whose names start with the prefix. If some of these files have exactly this
    prefix, return only these files.
    """
    folder = prefix.parent
    if not prefix.name or not folder.is_dir():
        raise ProfileReadError(prefix, *MISSING)
    files = [
        file for file in sorted(folder.glob("*")) if file.is_file() and _DATA_NAME.search(file.name)
    ]
    files = [file for file in files if file.name.startswith(prefix.name)]
    own = []
    for file in files:
        known = _recognized(file)
        if known is not None and known.prefix == prefix:
            own.append(file)
    if not files:
        raise ProfileReadError(
            prefix,
            "the path doesn't exist, and no file name starts with this text",
            "the path is wrong, or the profiler didn't write any files",
            "check the path",
        )
    return own or files


def _by_process(files: list[OutputFile], root: Path) -> list[ProcessFiles]:
    groups: dict[Path, list[OutputFile]] = {}
    for file in files:
        groups.setdefault(file.prefix, []).append(file)
    return [
        ProcessFiles(
            prefix, tuple(members), _stated(_RANK, prefix, root), _stated_process(prefix, root)
        )
        for prefix, members in sorted(groups.items())
    ]


def _stated_process(prefix: Path, root: Path) -> int | None:
    """Return the process number in a prefix. By default, the prefix of a file consists only of the
    process number. In a folder's name, a number can mean anything.
    """
    if _NUMBER_ALONE.fullmatch(prefix.name) and not prefix.is_dir():
        return int(prefix.name)
    return _stated(_PROCESS, prefix, root)


def _stated(pattern: re.Pattern[str], prefix: Path, root: Path) -> int | None:
    """Return a number from the prefix or from the name of the nearest parent folder. The search
    stops at the root folder.
    """
    for name in (
        prefix.name,
        *(folder.name for folder in prefix.parents if folder.is_relative_to(root)),
    ):
        match = pattern.search(name)
        if match:
            return int(match[1])
    return None


def _foreign(path: Path, head: bytes) -> ProfileReadError:
    if not head.strip():
        return ProfileReadError(path, *EMPTY)
    header = header_of(head)
    found = f"its columns are {', '.join(header)[:80]!r}" if header and len(header) > 1 else None
    return ProfileReadError(
        path,
        f"the file isn't rocprofv3 output ({found or f'it starts with {head[:24]!r}'})",
        "another tool wrote the file, or its beginning is damaged",
        "pass a CSV or JSON file from rocprofv3, or the folder passed to --output-directory",
    )


def _nothing(path: Path, candidates: list[Path]) -> ProfileReadError:
    if candidates:
        found = (
            f"none of the {len(candidates)} CSV or JSON files is from rocprofv3"
            f" (the first is {candidates[0].name!r})"
        )
    else:
        found = "there is no CSV or JSON file"
    return ProfileReadError(
        path,
        found,
        "ROCm 7 writes a database by default (*_results.db), or the run ended before rocprofv3"
        " wrote its results",
        "record with --output-format csv, or read the database",
    )
