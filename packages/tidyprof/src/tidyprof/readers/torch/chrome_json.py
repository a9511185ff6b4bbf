"""Division of a Chrome trace's JSON into batches of events while the file is being read.

A Chrome trace is an object whose member `traceEvents` is a list of events. Other members can come
before and after this list
(https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).

The list is cut between two events. The reader searches the text for likely boundaries between
events, and it decodes the text to check them. Text that starts at an event is put in brackets. The
result is a valid list only if the text also ends between two events, because a cut within an event
or a string leaves a bracket or quotation mark open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from tidyprof.errors import EMPTY, ProfileReadError
from tidyprof.readers.torch.events import Event, decode_events

EVENT_LIST = "traceEvents"

MAXIMUM_UNDIVIDED_BYTES = 64 * 2**20
"""Maximum length of text without the end of an event, and of text before and after the event list.

In real files, these parts are shorter than a megabyte. The limit prevents a damaged file from using
up all memory.
"""

_CANDIDATES_TRIED = 4
_BRACES_SEARCHED = 1000
_BOUNDARY_WIDTH = 256
_BOUNDARY = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*$")
_LIST_END = re.compile(rb"\}[ \t\r\n]*\](?=[ \t\r\n]*[,}])")
_LONGEST_NAME = 20_000
_UNESCAPED = re.compile(
    r'(?P<before>"ph"\s*:\s*"\w"\s*,\s*"cat"\s*:\s*"[^"\\]*"\s*,\s*"name"\s*:\s*"'
    r'|\{\s*"name"\s*:\s*")'
    rf'(?P<name>.{{0,{_LONGEST_NAME}}}?)(?P<after>"\s*,\s*"(?:pid|ph)"\s*:)'
    r'|(?P<escape>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|(?P<backslash>\\)",
    re.DOTALL,
)
"""Pattern for names between the members that Kineto and torch's own exporter write around them. It
also matches backslashes in other places, with and without a valid escape.
"""

_MEMBER = re.compile(r'"(ph|pid)"\s*:')
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_EMPTY_LIST = b'"traceEvents": []'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DECODER = json.JSONDecoder(strict=False)
_INVALID = (ValueError, IndexError, RecursionError, OverflowError)

_Batch = tuple[list[Event], bytes]


class ChromeTrace:
    """One pass over a Chrome trace.

    - path: path for error messages
    - chunks: uncompressed bytes of the file in chunks
    - metadata: members outside the event list, which are complete when `batches` is exhausted
    - tolerated: number of batches that could be read although they aren't strict JSON, for example
      because of NaN, control characters, invalid UTF-8 or unescaped names
    """

    def __init__(self, path: Path, chunks: Iterator[bytes]) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tolerated = 0
        self._chunks = chunks
        # Unused text that was already read. Within the event list, it starts with a bracket.
        self._text = b""
        self._complete = False
        self._list_ended = False
        self._decoded = 0

    def batches(self) -> Iterator[_Batch]:
        """Yield batches of events, and the JSON list of each batch.

        Raises ProfileReadError if the text isn't a Chrome trace, ends too early, or contains a
        value of the wrong type.
        """
        self._read_members_before()
        while not self._list_ended:
            # Nearly every batch is strict JSON. Cutting before tolerant decoding limits the slow
            # path to the damaged part.
            batch = self._next(self._strict) or self._next(self._tolerant)
            if batch:
                self._decoded += len(batch[0])
                yield batch
            elif self._complete:
                raise self._malformed()
            else:
                self._read_more()
        self._read_members_after()

    def _read_more(self) -> None:
        """Append at least as much text as is already in memory. This keeps the total time for
        rereading text linear.
        """
        collected, size = [self._text], len(self._text)
        wanted = 2 * size
        while not self._complete and size <= wanted:
            chunk = next(self._chunks, b"")
            self._complete = not chunk
            collected.append(chunk)
            size += len(chunk)
            if size > MAXIMUM_UNDIVIDED_BYTES and len(collected) > 2:
                raise self._malformed(f"no event ends within {size} bytes")
        self._text = b"".join(collected)

    def _next(self, decode: Callable[[bytes], _Batch | None]) -> _Batch | None:
        """Return the events up to a boundary between events, or up to the end of the list. Return
        None if the text can't be decoded so.
        """
        for end, following in islice(_boundaries(self._text), _CANDIDATES_TRIED):
            batch = decode(b"".join((memoryview(self._text)[:end], b"]")))
            if batch is not None:
                self._text = b"[" + self._text[following:]
                return batch
        for end in self._list_ends():
            batch = decode(self._text[:end])
            if batch is not None:
                self._list_ended = True
                self._text = self._text[end:]
                return batch
        return None

    def _list_ends(self) -> list[int]:
        """Return the end of the list, or its likely ends if the text must be corrected to be valid
        JSON. Return nothing if the list continues beyond the text that has been read.
        """
        text = self._text.decode("utf-8", "surrogateescape")
        try:
            return [len(text[: _DECODER.raw_decode(text)[1]].encode("utf-8", "surrogateescape"))]
        except _INVALID:
            ends = _LIST_END.finditer(self._text) if self._complete else ()
            return [match.end() for match in islice(ends, _CANDIDATES_TRIED)]

    def _strict(self, piece: bytes) -> _Batch | None:
        try:
            return decode_events(piece), piece
        except msgspec.ValidationError as error:
            raise self._wrong_type(error) from None
        except (msgspec.DecodeError, *_INVALID):
            return None

    def _tolerant(self, piece: bytes) -> _Batch | None:
        """Decode text that isn't strict JSON. NaN and infinite numbers become null."""
        try:
            strict = msgspec.json.encode(_loaded(piece))
            batch = decode_events(strict), strict
        except msgspec.ValidationError as error:
            raise self._wrong_type(error) from None
        except (msgspec.DecodeError, *_INVALID):
            return None
        self.tolerated += 1
        return batch

    def _read_members_before(self) -> None:
        while True:
            self._read_more()
            text = self._text.removeprefix(_BYTE_ORDER_MARK).lstrip()
            for start in islice(_LIST_START.finditer(text), _CANDIDATES_TRIED):
                # The text before the list is an object unless the list is inside another member.
                try:
                    self.metadata = _loaded(text[: start.start()] + _EMPTY_LIST + b"}")
                except _INVALID:
                    continue
                self._text = b"[" + text[start.end() :]
                return
            if self._complete and not text:
                raise ProfileReadError(self.path, *EMPTY)
            if self._complete or text[:1] not in (b"{", b""):
                raise ProfileReadError(
                    self.path,
                    f"the file has no JSON object with a list named {EVENT_LIST!r}",
                    "the file isn't a Chrome trace, or it is incomplete",
                    "pass the file that torch.profiler's export_chrome_trace writes",
                )

    def _read_members_after(self) -> None:
        while not self._complete:
            self._read_more()
        if _LIST_START.search(self._text):
            raise self._malformed("another event list follows")
        try:
            self.metadata |= _loaded(b"{" + _EMPTY_LIST + self._text)
        except _INVALID:
            raise self._malformed() from None
        del self.metadata[EVENT_LIST]

    def _malformed(self, finding: str = "") -> ProfileReadError:
        return ProfileReadError(
            self.path,
            f"the file isn't valid JSON after event {self._decoded} of the event list"
            + (f" ({finding})" if finding else ""),
            "the file or its copy is incomplete, several processes wrote it at once, or an old"
            " version of torch didn't escape its names (pytorch/pytorch#113001)",
            "copy it again, or record again with one file name per rank and a newer version of"
            " torch",
        )

    def _wrong_type(self, error: msgspec.ValidationError) -> ProfileReadError:
        return ProfileReadError(
            self.path,
            f"{error} (counted from event {self._decoded})",
            "another tool wrote or changed this trace",
            "pass the original file from torch.profiler",
        )


def _loaded(text: bytes) -> Any:
    """Return the value of JSON text. If necessary, names are escaped first."""
    readable = text.decode("utf-8", "replace")
    try:
        return json.loads(readable, strict=False)
    except ValueError:
        return json.loads(_UNESCAPED.sub(_escaped, readable), strict=False)


def _escaped(match: re.Match[str]) -> str:
    """Convert a match of `_UNESCAPED` to valid JSON. If a name seems to contain a member, the match
    is returned unchanged, because escaping its quotation marks wouldn't be enough.
    """
    name = match["name"]
    if name is None:
        return match[0] if match["escape"] else r"\\"
    if _MEMBER.search(name) or not re.search(r'["\\]', name):
        return match[0]
    return f"{match['before']}{json.dumps(name)[1:-1]}{match['after']}"


def _boundaries(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield likely boundaries between events, starting with the last one. Each boundary consists of
    the position of an event's end and the position of the next event's start.
    """
    start = len(text)
    for _ in range(_BRACES_SEARCHED):
        start = text.rfind(b"{", 0, start)
        if start <= 0:
            return
        match = _BOUNDARY.search(text, max(0, start - _BOUNDARY_WIDTH), start)
        if match:
            yield match.start() + 1, start
