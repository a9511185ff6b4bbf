"""A small sound file of every format, for tests that damage it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

import tidyprof
from tidyprof import Profile
from tidyprof_tests import damage
from tidyprof_tests.chrome_writer import small_step, trace_text
from tidyprof_tests.damage import mutations, text_mutations
from tidyprof_tests.perfetto_writer import small_trace
from tidyprof_tests.readers import (
    test_rocprof_sys,
    test_rocprof_v1,
    test_rocprofv3_bad_input,
    test_system_bad_input,
)
from tidyprof_tests.rocpd_writer import small_database
from tidyprof_tests.rpd_writer import small_file
from tidyprof_tests.snapshot_writer import small_snapshot


@dataclass(frozen=True)
class Sound:
    """A small sound file of a format: the name that it has to have, what is in it, and the format's
    own reader.
    """

    name: str
    content: bytes
    read: Callable[..., Profile]
    is_text: bool = True

    def write(self, folder: Path, pack: Callable[[bytes], bytes] = bytes, suffix: str = "") -> Path:
        path = folder / f"{self.name}{suffix}"
        path.write_bytes(pack(self.content))
        return path

    def changes(self, size: int | None = None) -> st.SearchStrategy[list[damage.Mutation]]:
        strategy = text_mutations if self.is_text else mutations
        return st.lists(strategy(size or len(self.content)), min_size=1, max_size=4)


TEXTS = {
    "torch": ("trace.json", trace_text(small_step()), tidyprof.read_torch_trace),
    **{f"rocprofv3 {name}": (name, content, tidyprof.read_rocprofv3)
       for name, content in test_rocprofv3_bad_input.SEEDS.items()},
    **{f"rocprof 1 {name}": (name, content, tidyprof.read_rocprof_v1)
       for name, content in test_rocprof_v1.SEEDS.items()},
    "rocprof-sys json": ("wall_clock-7.json", test_rocprof_sys.JSON, tidyprof.read_rocprof_sys),
    "rocprof-sys txt": ("wall_clock-7.txt", test_rocprof_sys.TEXT, tidyprof.read_rocprof_sys),
    **{f"system {name}": ("log.csv", content, tidyprof.read_system)
       for name, content in test_system_bad_input.SOURCES.items()},
}  # fmt: skip


def _database(write: Callable[[Path], Path], folder: Path) -> bytes:
    """Small pages, so that damage hits many different structures."""
    path = write(folder / "sound.db", page_bytes=512)
    content = path.read_bytes()
    path.unlink()
    return content


def sound_files(folder: Path) -> dict[str, Sound]:
    """Name of a format and of what is in the file -> the file; `folder` is for a moment's use."""
    found = {
        name: Sound(file, content if isinstance(content, bytes) else content.encode(), read)
        for name, (file, content, read) in TEXTS.items()
    }
    found["perfetto"] = Sound("trace.pftrace", small_trace(), tidyprof.read_perfetto, False)
    snapshot = pickle.dumps(small_snapshot(), 4)
    found["memory snapshot"] = Sound("a.pickle", snapshot, tidyprof.read_memory_snapshot, False)
    found["rocpd"] = Sound(
        "x_results.db", _database(small_database, folder), tidyprof.read_rocpd, False
    )
    found["rpd"] = Sound("trace.rpd", _database(small_file, folder), tidyprof.read_rpd, False)
    return found
