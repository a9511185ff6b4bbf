"""The trace for Perfetto: a file as it was found, or a Chrome trace written from a profile, small
enough for a notebook.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from proflab.errors import CourseError

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

LIMIT_BYTES = 8_000_000
"""Size in bytes of the largest compressed trace that goes into a cell's output; the notebook grows
by a third more than that.
"""

_CHROME_EVENT = re.compile(rb'"ph"\s*:\s*"')


@dataclass(frozen=True)
class Trace:
    """The trace that Perfetto is to open.

    name     -- file name, for titles and for saving.
    content  -- the file, compressed with gzip (which Perfetto unpacks), or None if it exceeds
                LIMIT_BYTES.
    protobuf -- whether it is in Perfetto's own format; else it is a Chrome trace.
    made_by  -- "" for a file as it was found, else how it was made from another format.
    """

    name: str
    content: bytes | None
    protobuf: bool = False
    made_by: str = ""


def prepare(
    source: str | PathLike[str] | Profile, step: int | None = None
) -> tuple[Trace, Profile | None]:
    """The trace to hand over, and the profile to draw, which is None for a Chrome trace that only
    Perfetto can read.

    Chrome traces and Perfetto's own files stay unchanged; other files, and a single step, become a
    Chrome trace. Raises CourseError for an unknown step and for a profile without events,
    ProfileReadError for a file that can't be read.
    """
    import tidyprof

    if isinstance(source, tidyprof.Profile):
        return _converted(
            source, step, f"{source.origin.kind}-{source.meta.get('tool', 'profile')}"
        )
    path = Path(source)
    if path.is_dir():
        return _converted(tidyprof.read(path), step, path.name)
    kind = _native_kind(path)
    # tidyprof can't read it, but Perfetto can.
    if kind == "foreign" and step is None:
        return _as_found(path), None
    profile = tidyprof.read(path)
    if kind == "other" or step is not None:
        return _converted(
            profile, step, path.name.removesuffix(".gz").rpartition(".")[0] or path.name
        )
    return _as_found(path, protobuf=kind == "protobuf"), profile


def step_of(profile: Profile, step: int) -> Profile:
    """The part of a profile between the beginning and the end of the host's range of one step, on
    all ranks.

    Events that reach into that time belong to it. Raises CourseError if there is no such step.
    """
    from tidyprof import steps
    from tidyprof.tables.contract import Profile

    found = steps(profile)
    own = found[found["step"] == step]
    if not len(own):
        known = ", ".join(str(number) for number in sorted(found["step"].unique())) or "none"
        raise CourseError(f"there is no step {step} in this recording; it has {known}")
    # Ranks don't begin and end a step at the same time.
    begin, end = own["start_ns"].min(), (own["start_ns"] + own["duration_ns"]).max()
    events, counters = profile.events, profile.counters
    inside = (events["start_ns"] < end) & (events["start_ns"] + events["duration_ns"] > begin)
    return Profile(
        events[inside], counters[counters["time_ns"].between(begin, end)], dict(profile.meta)
    )


def _native_kind(path: Path) -> str:
    """What Perfetto takes a file for: `chrome` or `protobuf`; `foreign` for a Chrome trace of an
    unknown tool; `other`.
    """
    from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream
    from tidyprof.readers.registry import FORMATS

    head = ByteStream(path).head(HEAD_BYTES)
    known = next((known.folder for known in FORMATS if known.recognises(path, head)), None)
    if known in ("torch", "perfetto"):
        return "chrome" if known == "torch" else "protobuf"
    is_chrome_trace = head.lstrip()[:1] in (b"{", b"[") and _CHROME_EVENT.search(head)
    return "foreign" if is_chrome_trace and not known else "other"


def _packed(path: Path) -> bytes | None:
    """The file compressed with gzip, unchanged if it already is; None if the result exceeds
    LIMIT_BYTES.
    """
    from isal import igzip

    from tidyprof.io.byte_stream import ByteStream

    if _is_gzip(path):
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        return content if len(content) <= LIMIT_BYTES else None
    # Stops at the limit, since a trace may have gigabytes.
    target = io.BytesIO()
    with igzip.IGzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed:
        for piece in ByteStream(path).chunks():
            packed.write(piece)
            if target.tell() > LIMIT_BYTES:
                return None
    return target.getvalue() if target.tell() <= LIMIT_BYTES else None


def _is_gzip(path: Path) -> bool:
    from tidyprof.io.byte_stream import compression_of

    with path.open("rb") as file:
        return compression_of(file.read(4)) == "gzip"


def _as_found(path: Path, protobuf: bool = False) -> Trace:
    """A file that Perfetto reads, under a name that tells how it is compressed now."""
    name = path.name if _is_gzip(path) else f"{path.name.removesuffix('.zst')}.gz"
    return Trace(name, _packed(path), protobuf)


def _converted(profile: Profile, step: int | None, stem: str) -> tuple[Trace, Profile]:
    """The profile, or one step of it, as a Chrome trace named after `stem`."""
    from tidyprof import write_chrome_trace

    shown = profile if step is None else step_of(profile, step)
    if not len(shown.events) and not len(shown.counters):
        raise CourseError(
            f"{stem}: it holds no events, so there is no timeline to open; look at its tables"
            " instead"
        )
    made_by = f"written by tidyprof from a file of {shown.meta.get('tool', 'a profiler')}"
    with TemporaryDirectory(prefix="proflab-perfetto-") as folder:
        path = Path(folder, "trace.json.gz")
        write_chrome_trace(shown, path)
        name = f"{stem}{'' if step is None else f'-step{step}'}.json.gz"
        return Trace(name, _packed(path), made_by=made_by), shown
