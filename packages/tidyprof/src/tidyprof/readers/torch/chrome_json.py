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
from typing import Any, Generic, TypeVar

import msgspec

from tidyprof.errors import CUT_SHORT, EMPTY, ProfileReadError

Event = TypeVar("Event")

EVENT_LIST = "traceEvents"

MAXIMUM_UNDIVIDED_BYTES = 64 * 2**20
"""Maximum length of text without the end of an event, and of text before and after the event list.

In real files, these parts are shorter than a megabyte. The limit prevents a damaged file from using
up all memory.
"""

_CUTS_TRIED = 4
_BRACES_SEARCHED = 1000
_BOUNDARY_WIDTH = 256
_BOUNDARY = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*$")
_LIST_END = re.compile(rb"\}[ \t\r\n]*\](?=[ \t\r\n]*[,}])")
_LONGEST_NAME = 20_000
_UNESCAPED = re.compile(
    r'(?P<before>"ph"\s*:\s*"\w"\s*,\s*"cat"\s*:\s*"[^"\\]*"\s*,\s*"name"\s*:\s*")'
    rf'(?P<name>.{{0,{_LONGEST_NAME}}}?)(?P<after>"\s*,\s*"pid"\s*:)'
    rf'|(?P<begin>\{{\s*"name"\s*:\s*")(?P<first>.{{0,{_LONGEST_NAME}}}?)(?P<end>"\s*,\s*"ph"\s*:)'
    r'|(?P<escape>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|(?P<backslash>\\)",
    re.DOTALL,
)
"""Pattern for names between the members that Kineto and torch's own exporter write around them. It
also matches backslashes in other places, with and without a valid escape.
"""

_MEMBER = re.compile(r'"(ph|pid)"\s*:')
_WITHIN_NAME = re.compile(r'"name"\s*:\s*"[^"]*"\s*$')
_SPACE = re.compile(r"[ \t\r\n]*")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DECODER = json.JSONDecoder(strict=False)


class ChromeTrace(Generic[Event]):
    """One pass over a Chrome trace.

    - path: path for error messages
    - chunks: uncompressed bytes of the file in chunks
    - decode: function that converts the bytes of a JSON list to events. It raises
      msgspec.DecodeError.
    - metadata: members outside the event list, which are complete when `batches` is exhausted
    - tolerated: number of batches that could be read although they aren't strict JSON, for example
      because of NaN, control characters or invalid UTF-8
    - mended: number of batches with unescaped quotation marks or backslashes, which were read
      literally
    """

    def __init__(
        self, path: Path, chunks: Iterator[bytes], decode: Callable[[bytes], list[Event]]
    ) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tolerated = 0
        self.mended = 0
        self._chunks = chunks
        self._decode = decode
        # Unused text that was already read. Within the event list, it starts with a bracket.
        self._text = b""
        self._complete = False
        self._list_ended = False
        self._decoded = 0

    def batches(self) -> Iterator[tuple[list[Event], bytes]]:
        """Yield batches of events, and the JSON list of each batch.

        Raises ProfileReadError if the text isn't a Chrome trace, ends too early, or contains a
        value of the wrong type.
        """
        self._read_members_before()
        # The fastest method comes first, because nearly every batch is strict JSON. Cutting before
        # tolerant decoding limits the slow path to the damaged part.
        while not self._list_ended:
            batch = (
                self._cut(self._strict)
                or self._last()
                or self._cut(self._tolerant)
                or self._last_mended()
            )
            if batch:
                self._decoded += len(batch[0])
                yield batch
            elif self._complete:
                raise self._broken()
            else:
                self._read_more()
        self._read_members_after()

    def _read_more(self) -> None:
        """Append at least as much text as is already in memory. This keeps the total time for
        rereading text linear.
        """
        wanted = 2 * len(self._text)
        collected = [self._text]
        size = len(self._text)
        while not self._complete and size <= wanted:
            chunk = next(self._chunks, b"")
            self._complete = not chunk
            collected.append(chunk)
            size += len(chunk)
            if size > MAXIMUM_UNDIVIDED_BYTES and len(collected) > 2:
                raise self._malformed(f"no event ends within {size} bytes")
        self._text = b"".join(collected)

    def _cut(
        self, decode: Callable[[bytes], tuple[list[Event], bytes] | None]
    ) -> tuple[list[Event], bytes] | None:
        for end, following in islice(_boundaries(self._text), _CUTS_TRIED):
            batch = decode(b"".join((memoryview(self._text)[:end], b"]")))
            if batch is not None:
                self._text = b"[" + self._text[following:]
                return batch
        return None

    def _last(self) -> tuple[list[Event], bytes] | None:
        """Return the events up to the end of the list. Return None if the list continues beyond the
        text that has been read.
        """
        text = self._text.decode("utf-8", "surrogateescape")
        try:
            _, end = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        piece = text[:end].encode("utf-8", "surrogateescape")
        batch = self._strict(piece) or self._tolerant(piece)
        if batch:
            self._list_ended = True
            self._text = text[end:].encode("utf-8", "surrogateescape")
        return batch

    def _last_mended(self) -> tuple[list[Event], bytes] | None:
        """Return the events up to the likely end of the list if the text must be corrected to be
        valid JSON.
        """
        ends = (match.end() for match in _LIST_END.finditer(self._text)) if self._complete else ()
        for end in islice(ends, _CUTS_TRIED):
            batch = self._tolerant(self._text[:end])
            if batch:
                self._list_ended = True
                self._text = self._text[end:]
                return batch
        return None

    def _strict(self, piece: bytes) -> tuple[list[Event], bytes] | None:
        # If the file has unescaped names, a backslash may not start an escape.
        if self.mended and b"\\" in piece:
            return None
        try:
            return self._decode(piece), piece
        except msgspec.ValidationError as error:
            raise self._wrong_type(error) from None
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None

    def _tolerant(self, piece: bytes) -> tuple[list[Event], bytes] | None:
        """Decode text that the standard library can read. If necessary, names are escaped first.
        NaN and infinite numbers become null.
        """
        text = piece.decode("utf-8", "replace")
        batch = None if self.mended else self._lenient(text)
        self.tolerated += batch is not None
        if batch is None:
            batch = self._lenient(_UNESCAPED.sub(_escaped, text))
            self.mended += batch is not None
        return batch

    def _lenient(self, text: str) -> tuple[list[Event], bytes] | None:
        try:
            strict = msgspec.json.encode(json.loads(text, strict=False))
            return self._decode(strict), strict
        except msgspec.ValidationError as error:
            raise self._wrong_type(error) from None
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
            return None

    def _read_members_before(self) -> None:
        # Bytes of an incomplete character become surrogates, which become the same bytes again.
        while True:
            self._read_more()
            text = self._text.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", "surrogateescape")
            start = _skip_space(text, 0)
            if text[start : start + 1] not in ("{", ""):
                raise self._no_object(text[start:])
            if self._complete and start == len(text):
                raise self._empty()
            try:
                position, found = _read_members(text, start + 1, self.metadata)
                break
            except (ValueError, IndexError, RecursionError) as error:
                if self._complete:
                    raise self._unreadable(text, error, "before the event list starts") from None
        if not found:
            raise self._no_event_list()
        before = text[:position].encode("utf-8", "surrogateescape")
        self._text = b"[" + self._text.removeprefix(_BYTE_ORDER_MARK)[len(before) :]

    def _read_members_after(self) -> None:
        while not self._complete:
            self._read_more()
        text = self._text.decode("utf-8", "surrogateescape")
        if self.mended:
            text = _UNESCAPED.sub(_escaped, text)
        try:
            start = _skip_space(text, 0)
            if text[start] == ",":
                end, found = _read_members(text, start + 1, self.metadata)
            else:
                end, found = start + 1, text[start] != "}"
            rest = text[end:].strip()
        except (ValueError, IndexError, RecursionError) as error:
            raise self._unreadable(text, error, "after the event list") from None
        if found or rest:
            raise self._malformed("more text follows the end of the trace")

    def _no_object(self, text: str) -> ProfileReadError:
        what = (
            "a bare list of events"
            if text.startswith("[")
            else f"text that starts with {text[:20]!r}"
        )
        return ProfileReadError(
            self.path,
            f"the file contains {what} instead of a JSON object",
            "another tool wrote the file",
            "pass the file that torch.profiler's export_chrome_trace writes",
        )

    def _empty(self) -> ProfileReadError:
        return ProfileReadError(self.path, *EMPTY)

    def _no_event_list(self) -> ProfileReadError:
        return ProfileReadError(
            self.path,
            f"the JSON object has no list named {EVENT_LIST!r}",
            "the file isn't a Chrome trace (it could be a configuration file or a table)",
            "pass the file that torch.profiler's export_chrome_trace writes",
        )

    def _broken(self) -> ProfileReadError:
        text = self._text.decode("utf-8", "replace")
        try:
            _DECODER.raw_decode(text)
        except (ValueError, RecursionError) as error:
            return self._unreadable(text, error, f"after event {self._decoded} of the event list")
        return self._malformed(f"after event {self._decoded} of the event list")

    def _unreadable(self, text: str, error: Exception, where: str) -> ProfileReadError:
        if isinstance(error, json.JSONDecodeError):
            if error.pos < len(text.rstrip()) and not error.msg.startswith("Unterminated"):
                if error.msg.startswith("Invalid \\") or _WITHIN_NAME.search(text[: error.pos]):
                    return self._unescaped(where)
                return self._malformed(f"{error.msg.lower()}, {where}")
        elif not isinstance(error, IndexError):
            return self._malformed(f"{error}, {where}")
        return self._truncated(f"ends {where}")

    def _truncated(self, finding: str) -> ProfileReadError:
        return ProfileReadError(self.path, f"the trace {finding}", *CUT_SHORT)

    def _malformed(self, finding: str) -> ProfileReadError:
        return ProfileReadError(
            self.path,
            f"the file isn't valid JSON ({finding})",
            "the file is damaged, was edited manually, or was written by several processes at once",
            "record again with one file name per rank",
        )

    def _unescaped(self, where: str) -> ProfileReadError:
        return ProfileReadError(
            self.path,
            f"the file isn't valid JSON (a quotation mark or backslash isn't escaped, {where})",
            "this torch version doesn't escape code names and paths (pytorch/pytorch#113001)",
            "record again with a newer version of torch, or without with_stack=True",
        )

    def _wrong_type(self, error: msgspec.ValidationError) -> ProfileReadError:
        place = re.search(r"\$\[(\d+)\]\.?([\w.]*)", str(error))
        where = (
            f" in event {self._decoded + int(place[1])}, member {place[2] or 'itself'!r}"
            if place
            else ""
        )
        return ProfileReadError(
            self.path,
            f"{str(error).partition(' - at')[0]}{where}",
            "another tool wrote or changed this trace",
            "pass the original file from torch.profiler",
        )


def _escaped(match: re.Match[str]) -> str:
    """Convert a match of `_UNESCAPED` to valid JSON. If a name seems to contain a member, the match
    is returned unchanged, because escaping its quotation marks wouldn't be enough.
    """
    for before, name, after in (("before", "name", "after"), ("begin", "first", "end")):
        if match[name] is not None:
            if _MEMBER.search(match[name]) or not re.search(r'["\\]', match[name]):
                return match[0]
            return f"{match[before]}{json.dumps(match[name])[1:-1]}{match[after]}"
    return match[0] if match["escape"] else r"\\"


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


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()


def _read_members(text: str, position: int, members: dict[str, Any]) -> tuple[int, bool]:
    """Read `"key": value` pairs of an object into `members`, starting at `position`.

    Return the position after the event list's opening bracket and True. If there is no event list,
    return the position after the object's closing brace and False. Raises ValueError or IndexError
    if the text is incomplete or invalid.
    """
    while True:
        position = _skip_space(text, position)
        if text[position] == "}" and not members:
            return position + 1, False
        key, position = _DECODER.raw_decode(text, position)
        position = _skip_space(text, position)
        if not isinstance(key, str) or text[position] != ":":
            raise json.JSONDecodeError("a name or a colon is missing", text, position)
        position = _skip_space(text, position + 1)
        if key == EVENT_LIST and text[position] == "[":
            return position + 1, True
        members[key], position = _DECODER.raw_decode(text, position)
        position = _skip_space(text, position)
        if text[position] == "}":
            return position + 1, False
        if text[position] != ",":
            raise json.JSONDecodeError("a comma or a brace is missing", text, position)
        position += 1
