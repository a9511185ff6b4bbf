"""What the Perfetto button is made of: which bytes, which page, which words. tests/browser presses
it.
"""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from proflab import perfetto_trace
from proflab.errors import CourseError
from proflab.perfetto_button import PerfettoButton, perfetto, viewer_page
from proflab.perfetto_trace import Trace, prepare, step_of
from tidyprof.io.byte_stream import zstd
from tidyprof.tables.contract import Origin, Profile
from tidyprof_tests.chrome_writer import TraceEvent, kernel, operator, small_step, write_trace


class Outline(HTMLParser):
    """Elements of a page with their attributes, and its text outside of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if not self._in_script:
            self.words.append(data)


@pytest.fixture(autouse=True)
def perfettos_own_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROFLAB_PERFETTO_URL", raising=False)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "small.json.gz", small_step())


@pytest.fixture
def two_steps(tmp_path: Path) -> Path:
    """Steps 1 and 2, each 100 µs with a kernel of 50 µs; a third kernel begins in step 1 and ends
    in step 2.
    """
    events = [
        TraceEvent("user_annotation", "ProfilerStep#1", 1_000_000, 100_000),
        TraceEvent("user_annotation", "ProfilerStep#2", 1_100_000, 100_000),
        kernel("first", 1_010_000, 50_000, 1),
        kernel("across", 1_090_000, 20_000, 2),
        kernel("second", 1_120_000, 50_000, 3),
    ]
    return write_trace(tmp_path / "two.json", events)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_compressed_chrome_trace_is_handed_over_as_it_is(trace: Path) -> None:
    prepared, profile = prepare(trace)
    assert prepared == Trace("small.json.gz", trace.read_bytes())
    assert len(profile.events) == len(tidyprof.read(trace).events)


@pytest.mark.parametrize("ending", [".json", ".json.zst"])
def test_what_is_not_gzip_is_packed_and_named_so(tmp_path: Path, ending: str) -> None:
    path = write_trace(tmp_path / f"small{ending}", small_step())
    prepared, _ = prepare(path)
    stored = path.read_bytes()
    assert prepared.name == "small.json.gz"
    assert gzip.decompress(prepared.content) == (
        zstd.decompress(stored) if ending == ".json.zst" else stored
    )


def test_the_same_file_gives_the_same_bytes(two_steps: Path) -> None:
    assert prepare(two_steps)[0] == prepare(two_steps)[0]


def test_perfettos_own_files_are_known_as_such(recordings: Path) -> None:
    (found,) = recordings.glob("rocprofv3-lumi-taylor/**/*.pftrace")
    prepared, _ = prepare(found)
    assert prepared.protobuf
    assert gzip.decompress(prepared.content) == found.read_bytes()
    assert "version='v46.0'" in PerfettoButton(
        prepared, "https://a.example/", "t"
    )._repr_html_().replace("&#x27;", "'")


def test_another_tools_file_becomes_a_chrome_trace_with_the_same_events(
    recordings: Path, tmp_path: Path
) -> None:
    (path,) = recordings.glob("rpd-mi200-matmul/**/*.rpd")
    prepared, _ = prepare(path)
    (tmp_path / prepared.name).write_bytes(prepared.content)
    written, original = (
        tidyprof.kernels(tidyprof.read(tmp_path / prepared.name)),
        tidyprof.kernels(tidyprof.read(path)),
    )
    assert written[["calls", "total_ns"]].equals(original[["calls", "total_ns"]])
    assert prepared.name == f"{path.stem}.json.gz"
    assert prepared.made_by == "written by tidyprof from a file of rocmProfileData"


def test_a_profile_is_named_after_its_origin_and_tool(trace: Path) -> None:
    profile = tidyprof.read(trace)
    profile.meta["origin"] = Origin("modelled", "a test")
    assert prepare(profile)[0].name == "modelled-torch.profiler.json.gz"


def test_a_folder_becomes_one_trace_of_all_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        header = {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "nccl"}}
        write_trace(tmp_path / f"rank{rank}.json", small_step(), header=header)
    prepared, profile = prepare(tmp_path)
    assert prepared.name == f"{tmp_path.name}.json.gz"
    assert sorted(profile.events["rank"].unique()) == [0, 1]


def test_a_chrome_trace_of_an_unknown_tool_is_handed_over_without_a_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "foreign.json"
    path.write_text('[{"name": "work", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]')
    perfetto(path)
    button, notice = shown(capsys)
    assert button.startswith("[button, in a notebook] foreign.json.gz")
    assert notice.startswith("No timeline here: tidyprof does not know the tool")


def test_a_step_holds_what_reaches_into_it(two_steps: Path) -> None:
    profile = tidyprof.read(two_steps)
    assert set(step_of(profile, 1).device_events["name"]) == {"first", "across"}
    assert set(step_of(profile, 2).device_events["name"]) == {"across", "second"}
    prepared, cut = prepare(two_steps, step=2)
    assert prepared.name == "two-step2.json.gz"
    assert set(cut.device_events["name"]) == {"across", "second"}


def test_a_step_that_is_not_there_is_refused_with_those_that_are(two_steps: Path) -> None:
    with pytest.raises(CourseError, match="no step 7 in this recording; it has 1, 2"):
        perfetto(two_steps, step=7)


def test_the_timeline_stands_below_the_button_in_words(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    perfetto(trace, title="My run")
    button, figure = shown(capsys)
    size = f"{trace.stat().st_size} B"
    assert (
        button == f"[button, in a notebook] My run ({size}): opens it in https://ui.perfetto.dev/"
    )
    assert figure.startswith("[figure] Timeline of")


def test_a_trace_above_the_limit_stays_out_of_the_notebook(
    two_steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = len(prepare(two_steps)[0].content)
    monkeypatch.setattr(perfetto_trace, "LIMIT_BYTES", limit - 1)
    perfetto(two_steps)
    notice, code, figure = shown(capsys)
    assert notice.startswith("Too large for a button: two.json.gz has more than")
    assert "https://ui.perfetto.dev/" in notice
    assert code.strip() == "proflab.perfetto(..., step=2)"
    assert figure.startswith("[figure]")
    monkeypatch.setattr(perfetto_trace, "LIMIT_BYTES", limit)
    perfetto(two_steps)
    assert shown(capsys)[0].startswith("[button")


def test_the_limit_holds_for_compressed_files_too(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto_trace, "LIMIT_BYTES", trace.stat().st_size - 1)
    assert prepare(trace)[0].content is None


def test_packing_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.json.zst"
    text = json.dumps(list(range(1_500_000))).encode()  # 12 MB, so ten pieces
    packed = zstd.compress(text)
    path.write_bytes(packed[:-1000] + bytes(1000))
    with pytest.raises(tidyprof.ProfileReadError):  # whoever reads to the end meets the damage
        perfetto_trace._packed(path)
    monkeypatch.setattr(perfetto_trace, "LIMIT_BYTES", 100)
    assert perfetto_trace._packed(path) is None


def test_counters_alone_have_a_button_and_no_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = tidyprof.read(write_trace(tmp_path / "a.json", [operator("aten::mm", 1, 1, 1)]))
    sample = {"time_ns": [5], "device": [0], "name": ["power"], "value": [400.0], "unit": ["W"]}
    counters = pd.DataFrame(sample).astype(tidyprof.COUNTER_DTYPES)
    perfetto(Profile(some.events.iloc[:0], counters, dict(some.meta)))
    button, notice = shown(capsys)
    assert button.startswith("[button")
    assert "counters only" in notice


def test_a_profile_without_events_is_refused(trace: Path) -> None:
    profile = tidyprof.read(trace)
    with pytest.raises(CourseError, match="holds no events"):
        perfetto(Profile(profile.events.iloc[:0], profile.counters.iloc[:0], dict(profile.meta)))


@pytest.mark.parametrize(
    ("name", "content"), [("missing.json", None), ("empty.json", b""), ("odd.json", b"\x1f\x8bno")]
)
def test_unreadable_files_are_one_line(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CourseError, match=r"Likely cause: .* Next step: ") as caught:
        perfetto(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "page"),
    [
        (None, "https://ui.perfetto.dev/"),
        ("v46.0", "https://ui.perfetto.dev/v46.0-35b3d9845/"),
        ("v47.0-02b2414d5", "https://ui.perfetto.dev/v47.0-02b2414d5/"),
    ],
)
def test_versions_have_pages_of_their_own(version: str | None, page: str) -> None:
    assert viewer_page(version) == page


@pytest.mark.parametrize(
    "version",
    ["canary", "46", "v46.0-35b3d9845/../evil", "v46.0-35b3d9845?url=x", "//evil.example"],
)
def test_what_can_be_no_version_is_refused(version: str, trace: Path) -> None:
    with pytest.raises(CourseError, match="is no version of Perfetto's page"):
        perfetto(trace, version=version)


def test_a_viewer_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFLAB_PERFETTO_URL", "https://viewer.example/perfetto/")
    assert viewer_page("v46.0") == "https://viewer.example/perfetto/v46.0-35b3d9845/"


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "file:///tmp/x", "viewer.example", "https://"]
)
def test_a_viewer_that_is_no_web_page_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFLAB_PERFETTO_URL", address)
    with pytest.raises(CourseError, match="no web address"):
        viewer_page()


@settings(max_examples=20)
@given(title=st.text(), name=st.text(), content=st.binary(max_size=300))
def test_no_name_changes_the_structure_of_the_page(title: str, name: str, content: bytes) -> None:
    def outline(title: str, name: str) -> Outline:
        page = PerfettoButton(Trace(name, content), "https://ui.perfetto.dev/", title)._repr_html_()
        page.encode("utf-8")  # raises for what no notebook could store
        return Outline(page)

    found, plain = outline(title, name), outline("title", "name")
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    (box,) = [attributes for _, attributes in found.elements if "data-trace" in attributes]
    assert base64.b64decode(box["data-trace"]) == content
    config: dict[str, Any] = json.loads(box["data-config"])
    assert all(text.isprintable() for text in (config["title"], config["fileName"]))
    assert len(config["title"]) == len(title)


def test_the_script_holds_nothing_but_its_own_text_and_a_random_name() -> None:
    button = PerfettoButton(Trace("a.json.gz", b"x"), "https://ui.perfetto.dev/", "a")
    pages = [button._repr_html_(), button._repr_html_()]
    identities = [dict(Outline(page).elements[0][1])["id"] for page in pages]
    assert identities[0] != identities[1]
    assert pages[0].replace(identities[0], "") == pages[1].replace(identities[1], "")
    script = pages[0].partition("<script>")[2]
    assert script.count("</") == 1
    assert "a.json.gz" not in script


def test_buttons_wait_for_their_script() -> None:
    found = Outline(PerfettoButton(Trace("a", b"x"), "https://ui.perfetto.dev/", "a")._repr_html_())
    buttons = [attributes for tag, attributes in found.elements if tag == "button"]
    assert [("disabled" in button, button["type"]) for button in buttons] == [(True, "button")] * 2
    assert "run this cell again" in "".join(found.words)
