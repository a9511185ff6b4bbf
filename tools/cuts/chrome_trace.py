"""A torch.profiler trace with only the events and arguments that tidyprof and the lessons read."""

from __future__ import annotations

import json

import msgspec

from tidyprof.readers.torch.events import (
    MEMORY_CATEGORY,
    WINDOW_CATEGORY,
    Arguments,
    kind_of_category,
)

_ARGUMENTS = {field.encode_name for field in msgspec.structs.fields(Arguments)} | {
    "Process Group Ranks"
}
_MEMBERS = dict[str, msgspec.Raw]
_ORDER = ("ph", "cat", "pid", "tid", "name", "args", "dur", "ts")
_OWNER, _OWNERS = "External id", (b'"cpu_op"', b'"user_annotation"')


def trace(text: bytes) -> bytes:
    """Return the trace without flow events, the Python call stack, and unread arguments."""
    return _cut(text, python_functions=False)


def trace_with_stacks(text: bytes) -> bytes:
    """Return the trace without flow events and unread arguments."""
    return _cut(text, python_functions=True)


def _cut(text: bytes, python_functions: bool) -> bytes:
    members = msgspec.json.decode(text, type=_MEMBERS)
    events = msgspec.json.decode(members.pop("traceEvents"), type=list[_MEMBERS])
    kept = [_lean(event) for event in events if _is_read(event, python_functions)]
    # Write the list last, because a reader recognizes the format by the members before it.
    return msgspec.json.encode(members | {"traceEvents": kept})


def _is_read(event: dict[str, msgspec.Raw], python_functions: bool) -> bool:
    category = json.loads(bytes(event.get("cat", b"null")))
    if category == "python_function":
        return python_functions
    names_a_row = bytes(event["ph"]) == b'"M"'
    return (
        names_a_row
        or category in (MEMORY_CATEGORY, WINDOW_CATEGORY)
        or kind_of_category(category) is not None
    )


def _lean(event: dict[str, msgspec.Raw]) -> dict[str, object]:
    """Return the event with each number written as in the original text."""
    if "args" not in event or bytes(event["ph"]) == b'"M"':
        return event
    arguments = msgspec.json.decode(event["args"], type=_MEMBERS)
    return event | {
        "args": {name: value for name, value in arguments.items() if name in _ARGUMENTS}
    }
