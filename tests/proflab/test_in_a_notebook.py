"""The toolkit inside a Jupyter kernel: HTML instead of print, and one-line errors."""

from __future__ import annotations

from pathlib import Path

from nbclient import NotebookClient
from nbformat import v4

from proflab.recall import WIDGET
from tidyprof_tests.patience import PATIENCE_S

CELLS = (
    "import proflab\nlesson = proflab.start('02')",
    "proflab.predict('02.a', 0.3, unit='fraction', what='<b>idle</b> share')",
    "proflab.recording('torch-mi210-gpu-only')",
    "lesson.recall()",
)


def test_a_notebook_shows_html_and_errors_of_one_line(tmp_path: Path, monkeypatch) -> None:
    for name in ("PROFLAB_RUNS", "PROFLAB_STRICT", "PROFLAB_KERNEL"):
        monkeypatch.delenv(name, raising=False)
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in CELLS])
    place = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, allow_errors=True, timeout=PATIENCE_S, resources=place)
    client.execute()
    start, prediction, error, asked = (cell.outputs[0] for cell in notebook.cells)
    assert '<th scope="col"' in start.data["text/html"]
    assert "transformers" in start.data["text/plain"]
    assert (tmp_path / "runs/02").is_dir()
    assert "&lt;b&gt;idle&lt;/b&gt; share" in prediction.data["text/html"]
    assert (error.output_type, len(error.traceback)) == ("error", 1)
    assert "(Lesson 01)" in asked.data["text/html"]
    widgets = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    assert asked.data[WIDGET]["model_id"] in widgets
