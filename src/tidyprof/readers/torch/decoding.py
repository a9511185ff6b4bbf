"""Decodes batches of torch.profiler's events, and spares itself the members of events that never become rows.

With Python functions recorded, most events of a trace are of categories that are counted only. A decoder that knows a
category beforehand skips their members instead of making objects of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import msgspec

from tidyprof.readers.torch.events import (
    HOST_KINDS,
    MEMORY_CATEGORY,
    WINDOW_CATEGORY,
    Event,
    HostArguments,
    decode_events,
)
from tidyprof.tables.kind_codes import kind_of_category

_MOST_CATEGORIES = 64
"""Kineto has some thirty; a file with more is no trace of torch.profiler."""

_MEMBERS = {field.name: (field.type, field.default) for field in msgspec.structs.fields(Event) if field.name != "cat"}
_HOST_MEMBERS = _MEMBERS | {"args": (HostArguments | None, None)}


class EventDecoder:
    """Makes a list of events of the bytes of a JSON list; raises msgspec.DecodeError where they are none.

    Events have the attributes of `Event`, those of categories without rows only `cat`. Categories are learnt from
    the batches: one that holds an unknown category, or an event without any, is decoded in full.
    """

    def __init__(self, python_functions: bool) -> None:
        self._python_functions = python_functions
        self._categories: set[str] = set()
        self._decode_known: Callable[[bytes], list[Any]] | None = None
        self._in_full = self._attempts = 0

    def __call__(self, text: bytes) -> list[Any]:
        """The events in a batch."""
        # Where most attempts fail they cost more than they save.
        if self._decode_known and self._in_full <= 2 + self._attempts // 2:
            self._attempts += 1
            try:
                return self._decode_known(text)
            except msgspec.ValidationError:
                self._in_full += 1
        events = decode_events(text)
        self._learn({event.cat for event in events if event.cat is not None})
        return events

    def _learn(self, categories: set[str]) -> None:
        if categories <= self._categories or len(self._categories | categories) > _MOST_CATEGORIES:
            return
        self._categories |= categories
        if len(self._categories) < 2:
            return  # A single class would be taken for events without a category, too.
        kinds = [self._event_class(category) for category in sorted(self._categories)]
        self._decode_known = msgspec.json.Decoder(list[functools.reduce(operator.or_, kinds)]).decode

    def _event_class(self, category: str) -> type:
        kind = kind_of_category(category)
        has_rows = kind and (self._python_functions or category != "python_function")
        members: dict[str, tuple[Any, Any]] = {}
        if has_rows or category in (MEMORY_CATEGORY, WINDOW_CATEGORY):
            members = _HOST_MEMBERS if kind in HOST_KINDS else _MEMBERS
        fields = [(name, *described) for name, described in members.items()]
        return msgspec.defstruct(
            "KnownEvent", fields, tag_field="cat", tag=category, namespace={"cat": category}, gc=False
        )
