"""The bench inside a Jupyter kernel: HTML instead of print, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

from proflab.recall import WIDGET
from tidyprof_tests.patience import PATIENCE_S

STATE = "application/vnd.jupyter.widget-state+json"

CELLS = (
    "import proflab\nlesson = proflab.start('02')",
    "proflab.predict('02.a', 0.3, unit='fraction', what='<b>idle</b> share')",
    "proflab.try_recording('torch-mi210-gpu-only')",
    (
        "from proflab.exercises import Exercise, Mistake, Number\nmistakes = (Mistake(lambda data:"
        " 5, 'One too many.'), Mistake(lambda data: 3, 'One too few.'))\nq = Exercise('02.1',"
        " Number(lambda data: 4), mistakes, ('Count.',)).on(True)\nq.check(5)"
    ),
    "proflab.recording('torch-mi210-gpu-only')",
    "lesson.recall()",
)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in CELLS])
    folder = tmp_path_factory.mktemp("notebooks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROFLAB_OFFLINE", "1")
        patch.setenv("PROFLAB_CACHE", str(folder / "cache"))
        for name in ("PROFLAB_RECORDINGS", "PROFLAB_RUNS", "PROFLAB_STRICT"):
            patch.delenv(name, raising=False)
        patch.setenv("PATH", "/usr/bin:/bin")
        client = NotebookClient(
            notebook,
            allow_errors=True,
            timeout=PATIENCE_S,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
    notebook.metadata["folder"] = str(folder)
    return notebook


def html(executed: NotebookNode, cell: int) -> str:
    (output,) = executed.cells[cell].outputs
    return output.data["text/html"]


def test_start_shows_an_html_table_and_makes_the_folder(executed: NotebookNode) -> None:
    assert '<th scope="col"' in html(executed, 0)
    assert "Where does a step go?" in html(executed, 0)
    assert "transformers" in executed.cells[0].outputs[0].data["text/plain"]
    assert (Path(executed.metadata["folder"]) / "runs/02").is_dir()


def test_messages_are_escaped_html_with_plain_text_beside(executed: NotebookNode) -> None:
    assert "&lt;b&gt;idle&lt;/b&gt; share" in html(executed, 1)
    assert (
        executed.cells[1].outputs[0].data["text/plain"].startswith("Noted: you expect 0.3 fraction")
    )


def test_missing_recording_lets_the_lesson_go_on(executed: NotebookNode) -> None:
    assert "Recording not here" in html(executed, 2)
    assert "One too many." in html(executed, 3)


def test_learners_errors_have_no_traceback(executed: NotebookNode) -> None:
    (output,) = executed.cells[4].outputs
    assert output.output_type == "error"
    assert len(output.traceback) == 1
    assert output.traceback[0].startswith("RecordingUnavailable: recording torch-mi210-gpu-only")


def test_questions_come_as_buttons_and_as_a_page_that_needs_no_kernel(
    executed: NotebookNode,
) -> None:
    assert "(Lesson 01)" in html(executed, 5)
    (output,) = executed.cells[5].outputs
    assert output.data[WIDGET]["model_id"] in executed.metadata["widgets"][STATE]["state"]
    assert "(Lesson 01)" in output.data["text/plain"]
