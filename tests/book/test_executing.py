"""What was executed is kept as long as nothing changes that it depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat import NotebookNode, v4

from docs.book.executing import SOURCES, Executed, execute, require_recordings
from docs.book.offline import in_page, remote_resources
from docs.book.staging import remove_others, stage_page, write_if_new
from proflab.recordings import RecordingUnavailable


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one file for each of SOURCES."""
    for name in SOURCES:
        path = tmp_path / "repository" / name
        path = path if path.suffix else path / "file"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one")
    return tmp_path / "repository"


def notebook(source: str) -> NotebookNode:
    return v4.new_notebook(cells=[v4.new_code_cell(source, id="lesson-1")])


class Runner:
    """Counts what it is asked to execute."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, notebook: NotebookNode, folder: Path) -> NotebookNode:
        self.seen.append(notebook.cells[0].source)
        return notebook


def test_a_second_time_nothing_is_executed(repository: Path, tmp_path: Path):
    run = Runner()
    for _ in range(2):
        done = Executed(tmp_path / "out", repository).get("02_tiny", notebook("1"), run)
        assert done.metadata["executed"].count("-") == 2
    assert run.seen == ["1"]


def test_a_changed_lesson_is_executed_alone(repository: Path, tmp_path: Path):
    run = Runner()
    for first in ("1", "2"):
        executed = Executed(tmp_path / "out", repository)
        executed.get("02_tiny", notebook(first), run)
        executed.get("03_tiny", notebook("3"), run)
    assert run.seen == ["1", "3", "2"]


@pytest.mark.parametrize("name", SOURCES)
def test_changed_sources_execute_everything_again(repository: Path, tmp_path: Path, name: str):
    run = Runner()
    Executed(tmp_path / "out", repository).get("02_tiny", notebook("1"), run)
    path = repository / name
    (path if path.is_file() else path / "file").write_text("two")
    Executed(tmp_path / "out", repository).get("02_tiny", notebook("1"), run)
    assert run.seen == ["1", "1"]


def test_another_mirror_of_recordings_executes_everything_again(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = Executed(tmp_path / "out", repository).key
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(tmp_path))
    assert Executed(tmp_path / "out", repository).key != first


def test_pages_are_staged_where_their_links_expect_them(tmp_path: Path):
    repository, target = tmp_path / "repository", tmp_path / "pages"
    for path, text in {"docs/a.md": "[l](../LICENSE) [b](b.md)", "docs/b.md": "# B", "LICENSE": "MIT"}.items():
        write_if_new(repository / path, text)
    stage_page(repository, "docs/a.md", target, ())
    assert {str(path.relative_to(target)) for path in target.rglob("*.*")} == {"docs/a.md"}
    assert (target / "LICENSE").read_text() == "MIT"
    write_if_new(target / "docs/old.md", "# Gone")
    remove_others(target, {"docs/a.md"})
    assert not (target / "docs/old.md").exists()
    assert (target / "docs/a.md").exists()


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', ["//fonts.example/a.css"]),
        ('<img src="http://example/x.png">', ["http://example/x.png"]),
        ("<style>@import 'https://example/a.css'; p {color: red}</style>", ["https://example/a.css"]),
        ('<div style="background: url(https://example/a.png)"></div>', ["https://example/a.png"]),
        ('<a href="https://example">a link</a><img src="data:image/png;base64,aa"><script src="_static/x.js">', []),
    ],
)
def test_what_a_page_loads_from_the_network_is_found(page: str, found: list[str]):
    assert in_page(page) == found


def test_style_sheets_are_searched_too(tmp_path: Path):
    (tmp_path / "a.css").write_text('@font-face {src: url("https://example/a.woff")}')
    (tmp_path / "a.html").write_text("<p>fine</p>")
    assert remote_resources(tmp_path) == ["a.css: https://example/a.woff"]


def test_a_notebook_is_executed_in_its_folder_and_a_failure_names_the_cell(tmp_path: Path):
    done = execute(notebook("from pathlib import Path; print(Path.cwd().name)"), tmp_path)
    assert done.cells[0].outputs[0].text.strip() == tmp_path.name
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute(notebook("1 / 0"), tmp_path)


def test_a_recording_that_a_lesson_names_must_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for variable, value in {"CACHE": str(tmp_path), "RECORDINGS": str(tmp_path), "OFFLINE": "1"}.items():
        monkeypatch.setenv(f"PROFLAB_{variable}", value)
    require_recordings('proflab.recording("modelled-resnet")')
    with pytest.raises(RecordingUnavailable, match="PROFLAB_RECORDINGS"):
        require_recordings('proflab.try_recording("torch-mi300x-resnet-ddp-rank0")')
