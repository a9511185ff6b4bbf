"""Events whose members are skipped count as before, and nothing else changes."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidyprof.readers.torch.decoding import EventDecoder
from tidyprof.readers.torch.events import CodeTables, EventColumns, decode_events

CATEGORIES = [
    "kernel", "cpu_op", "cuda_runtime", "xpu_driver", "python_function", "ac2g", "Trace", "cpu_instant_event", "", None,
]  # fmt: skip


def text_of(*categories: str | None) -> bytes:
    """A list of complete events of these categories, without the member where it is None."""
    events = []
    for number, category in enumerate(categories):
        event = {"ph": "X", "cat": category, "name": f"n{number}", "pid": 1, "tid": 2, "ts": 10.5 + number, "dur": 1}
        event["args"] = {"External id": number, "stream": 3, "grid": [1, 2, 3]}
        events.append({key: value for key, value in event.items() if value is not None})
    return json.dumps(events).encode()


def collected(batches: list[bytes], decode, python_functions: bool) -> tuple:
    columns = EventColumns(CodeTables(), python_functions)
    for number, text in enumerate(batches):
        columns.add(decode(text), text, number)
    found = {name: values.tolist() for name, values in columns.collected().items()}
    return found, columns.by_category, columns.total, columns.windows, len(columns.memory), list(columns.tables.names)


@pytest.mark.parametrize("python_functions", [False, True])
@given(st.lists(st.lists(st.sampled_from(CATEGORIES), max_size=6), max_size=6))
def test_the_same_columns_as_in_full(python_functions, batches):
    texts = [text_of(*categories) for categories in batches]
    decoder = EventDecoder(python_functions)
    assert collected(texts, decoder, python_functions) == collected(texts, decode_events, python_functions)


def test_events_without_rows_are_skipped_once_their_category_is_known():
    decode = EventDecoder(python_functions=False)
    first, second = decode(text_of("ac2g", "kernel")), decode(text_of("ac2g", "kernel"))
    assert (first[0].name, first[1].name) == ("n0", "n1")
    assert (hasattr(second[0], "name"), second[1].name) == (False, "n1")
    assert [event.cat for event in second] == ["ac2g", "kernel"]


def test_python_functions_are_decoded_where_they_are_wanted():
    decode = EventDecoder(python_functions=True)
    decode(text_of("python_function", "kernel"))
    assert decode(text_of("python_function"))[0].name == "n0"


def test_an_event_without_a_category_is_none_of_the_only_one_so_far():
    decode = EventDecoder(python_functions=False)
    decode(text_of("ac2g"))
    assert [event.cat for event in decode(text_of(None, "ac2g"))] == [None, "ac2g"]


def test_it_gives_up_where_most_batches_have_events_without_a_category():
    decode = EventDecoder(python_functions=False)
    decode(text_of("ac2g", "kernel"))
    for _ in range(20):
        decode(text_of("ac2g", None))
    assert hasattr(decode(text_of("ac2g"))[0], "name")


@pytest.mark.parametrize("text", [b'[{"cat": "kernel", "ts": 1', b'[{"cat": "kernel", "name": 5}]', b"[1]"])
def test_what_is_no_list_of_events_is_refused_as_in_full(text):
    decode = EventDecoder(python_functions=False)
    decode(text_of("kernel", "ac2g"))
    with pytest.raises(msgspec.DecodeError) as found:
        decode(text)
    with pytest.raises(msgspec.DecodeError) as wanted:
        decode_events(text)
    assert (type(found.value), str(found.value)) == (type(wanted.value), str(wanted.value))


def test_a_file_of_countless_categories_is_decoded_in_full():
    decode = EventDecoder(python_functions=False)
    decode(text_of(*map(str, range(100))))
    assert decode(text_of("7"))[0].name == "n0"
