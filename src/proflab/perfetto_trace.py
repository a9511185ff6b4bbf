"""The trace that Perfetto opens, if it is small enough for a notebook.

The trace is either the original file or a Chrome trace that tidyprof writes from a profile.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from proflab.errors import CourseError

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

LIMIT_BYTES = 8_000_000
"""Maximum size in bytes of a compressed trace in a cell's output.

Encoding increases the size in the notebook by a third.
"""


@dataclass(frozen=True)
class Trace:
    """Trace that Perfetto opens.

    - name: file name, used as a title and for saving the trace.
    - content: the file, compressed with gzip (which Perfetto unpacks), or None if it exceeds
      LIMIT_BYTES.
    - made_by: "" for the original file, or a description of the conversion from another format.
    """

    name: str
    content: bytes | None
    made_by: str = ""


def prepare(
    source: str | PathLike[str] | Profile, step: int | None = None
) -> tuple[Trace, Profile]:
    """Return the trace for Perfetto and the profile for the timeline.

    Files from torch.profiler and Perfetto remain unchanged. Other files and single steps become
    a Chrome trace. Raises CourseError for an unknown step and for a profile without events, and
    ProfileReadError for a file that can't be read.
    """
    import tidyprof
    from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream
    from tidyprof.readers.registry import FORMATS

    if isinstance(source, tidyprof.Profile):
        stem = f"{source.origin.kind}-{source.meta.get('tool', 'profile')}"
        return _converted(source, step, stem)
    path = Path(source)
    profile = tidyprof.read(path)
    if step is None and path.is_file():
        stream = ByteStream(path)
        head = stream.head(HEAD_BYTES)
        kind = next((one.folder for one in FORMATS if one.recognizes(path, head)), "")
        if kind in ("torch", "perfetto"):
            content = path.read_bytes()
            name = path.name
            if not content.startswith(b"\x1f\x8b"):
                content = gzip.compress(b"".join(stream.chunks()), 6, mtime=0)
                name = f"{name.removesuffix('.zst')}.gz"
            return Trace(name, _limited(content)), profile
    return _converted(profile, step, path.name.removesuffix(".gz").rpartition(".")[0] or path.name)


def step_of(profile: Profile, step: int) -> Profile:
    """Return the part of a profile that covers one step, on all ranks.

    The step's host range defines the start and the end. The result includes all events that
    overlap the step. Raises CourseError if the step doesn't exist.
    """
    from tidyprof import steps
    from tidyprof.tables.contract import Profile

    found = steps(profile)
    own = found[found["step"] == step]
    if not len(own):
        known = ", ".join(str(number) for number in sorted(found["step"].unique())) or "none"
        raise CourseError(f"there is no step {step} in this trace. It has {known}.")
    # Each rank starts and ends a step at a different time.
    begin, end = own["start_ns"].min(), (own["start_ns"] + own["duration_ns"]).max()
    events, counters = profile.events, profile.counters
    inside = (events["start_ns"] < end) & (events["start_ns"] + events["duration_ns"] > begin)
    return Profile(
        events[inside], counters[counters["time_ns"].between(begin, end)], dict(profile.meta)
    )


def _limited(content: bytes) -> bytes | None:
    return content if len(content) <= LIMIT_BYTES else None


def _converted(profile: Profile, step: int | None, stem: str) -> tuple[Trace, Profile]:
    """Return the profile or one of its steps as a Chrome trace. The trace's name starts with
    `stem`.
    """
    from tidyprof import write_chrome_trace

    shown = profile if step is None else step_of(profile, step)
    if not len(shown.events) and not len(shown.counters):
        raise CourseError(
            f"{stem} doesn't contain any events, so there is no timeline. Look at its"
            " tables instead."
        )
    made_by = f"written by tidyprof from a {shown.meta.get('tool', 'profiler')} file"
    with TemporaryDirectory(prefix="proflab-perfetto-") as folder:
        path = Path(folder, "trace.json.gz")
        write_chrome_trace(shown, path)
        name = f"{stem}{'' if step is None else f'-step{step}'}.json.gz"
        return Trace(name, _limited(path.read_bytes()), made_by=made_by), shown
