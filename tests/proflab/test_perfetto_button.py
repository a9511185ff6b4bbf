"""What the Perfetto button is made of: which bytes and which page. tests/browser presses it."""

from __future__ import annotations

import base64
import gzip
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from proflab import perfetto_trace
from proflab.errors import CourseError
from proflab.perfetto_button import PerfettoButton, perfetto, viewer_page
from proflab.perfetto_trace import Trace, prepare
from proflab.recordings import recording
from tidyprof.io.byte_stream import zstd
from tidyprof.tables.contract import Profile
from tidyprof_tests.chrome_writer import TraceEvent, kernel, small_step, write_trace


class Outline(HTMLParser):
    """Elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "small.json.gz", small_step())


@pytest.fixture
def two_steps(tmp_path: Path) -> Path:
    """Steps 1 and 2, each 100 µs with a kernel of 50 µs; a third kernel reaches over both."""
    events = [
        TraceEvent("user_annotation", "ProfilerStep#1", 1_000_000, 100_000),
        TraceEvent("user_annotation", "ProfilerStep#2", 1_100_000, 100_000),
        kernel("first", 1_010_000, 50_000, 1),
        kernel("across", 1_090_000, 20_000, 2),
        kernel("second", 1_120_000, 50_000, 3),
    ]
    return write_trace(tmp_path / "two.json", events)


def read_again(made: Trace, folder: Path) -> Profile:
    (folder / "again.json.gz").write_bytes(made.content)
    return tidyprof.read(folder / "again.json.gz")


@pytest.mark.parametrize("ending", [".json.gz", ".json", ".json.zst"])
def test_a_chrome_trace_keeps_its_bytes_and_is_gzipped(trace: Path, ending: str) -> None:
    text = gzip.decompress(trace.read_bytes())
    packed = {".json": text, ".json.zst": zstd.compress(text), ".json.gz": trace.read_bytes()}
    path = trace.with_name(f"other{ending}")
    path.write_bytes(packed[ending])
    made, profile = prepare(path)
    assert gzip.decompress(made.content) == text
    assert made.name == "other.json.gz"
    assert made.made_by == ""
    assert made == prepare(path)[0]
    assert len(profile.events)


def test_other_files_folders_and_steps_become_chrome_traces(two_steps: Path, tmp_path: Path):
    table = recording("modeled-resnet").path / "rocprofv3"
    made, profile = prepare(table)
    assert made.made_by
    assert len(read_again(made, tmp_path).device_events) == len(profile.device_events)
    made, _ = prepare(two_steps, step=2)
    names = read_again(made, tmp_path).device_events["name"].tolist()
    assert names == ["across", "second"]
    assert made.name.endswith(".json.gz")
    with pytest.raises(CourseError, match="1, 2"):
        prepare(two_steps, step=7)


def test_the_button_stands_above_the_timeline(trace: Path, capsys) -> None:
    perfetto(trace, title="A step")
    button, figure = capsys.readouterr().out.splitlines()
    assert "A step" in button
    assert "[figure]" in figure


def test_a_trace_above_the_limit_stays_out_of_the_notebook(two_steps: Path, monkeypatch, capsys):
    monkeypatch.setattr(perfetto_trace, "LIMIT_BYTES", 10)
    assert prepare(two_steps)[0].content is None
    perfetto(two_steps)
    out = capsys.readouterr().out
    assert "step=2" in out
    assert "[figure]" in out


def test_a_profile_without_events_is_refused(trace: Path) -> None:
    profile = tidyprof.read(trace)
    empty = Profile(profile.events.iloc[:0], meta=dict(profile.meta))
    with pytest.raises(CourseError):
        perfetto(empty)
    empty.counters = pd.DataFrame(
        {"time_ns": [1], "device": [0], "name": ["x"], "value": [1.0], "unit": ["W"]}
    )
    perfetto(empty)


@pytest.mark.parametrize("content", [None, b"", b"not a trace"])
def test_unreadable_files_are_one_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(CourseError) as error:
        perfetto(tmp_path / "x.json")
    assert "\n" not in str(error.value)


def test_a_viewer_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROFLAB_PERFETTO_URL", raising=False)
    assert viewer_page() == "https://ui.perfetto.dev/"
    monkeypatch.setenv("PROFLAB_PERFETTO_URL", "https://inside/perfetto/")
    assert viewer_page() == "https://inside/perfetto/"


@settings(max_examples=20)
@given(title=st.text(), name=st.text(), content=st.binary(max_size=300))
def test_no_name_changes_the_structure_of_the_page(title: str, name: str, content: bytes) -> None:
    def page(title: str, name: str) -> Outline:
        trace = Trace(name, content)
        return Outline(PerfettoButton(trace, "https://x/", title)._repr_html_())

    given_names, plain = page(title, name), page("a", "b")
    tags = [[tag for tag, _ in one.elements] for one in (given_names, plain)]
    assert tags[0] == tags[1]
    handed = next(attrs["data-trace"] for _, attrs in given_names.elements if "data-trace" in attrs)
    assert base64.b64decode(handed) == content
