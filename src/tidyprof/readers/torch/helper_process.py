"""The program of the processes of `helpers`: takes parts of a trace, gives back what it made of them."""

from __future__ import annotations

import pickle
import sys

import msgspec

from tidyprof.readers.torch.decoding import EventDecoder
from tidyprof.readers.torch.events import CodeTables, EventColumns
from tidyprof.readers.torch.helpers import HEAD


def serve(python_functions: bool) -> None:
    """Decode the parts that come on standard input; at its end, write what they hold to standard output.

    None stands for a part that is no list of events. Where it was cut wrongly, only the other process can know better.
    """
    source, target = sys.stdin.buffer, sys.stdout.buffer
    decode = EventDecoder(python_functions)
    collected: EventColumns | None = EventColumns(CodeTables(), python_functions)
    try:
        while head := source.read(HEAD.size):
            number, size = HEAD.unpack(head)
            text = source.read(size)
            collected.add(decode(text), text, number)
    except (msgspec.DecodeError, ValueError, RecursionError):
        collected = None
    pickle.dump(collected, target, pickle.HIGHEST_PROTOCOL)
    target.flush()
