"""How long the cells of each lesson take, as shipped, one lesson after the other.

Run with: python -m pytest benchmarks/bench_lessons.py -s

A learner waits for each cell, so there is a budget: a lesson takes at most 90 s, all together at most 7 minutes, on
two cores without AVX-512. ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 makes most processors such a one.
"""

from __future__ import annotations

import shutil
import time
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
MOST_S, MOST_TOGETHER_S = 90, 420
SHOWN = 3
MOMENTS = ("iopub.execute_input", "shell.execute_reply")
"""When a cell begins and ends, in nbclient's record of it."""


def cell_times(notebook: nbformat.NotebookNode) -> list[tuple[float, str]]:
    """Seconds and first line of each code cell, the longest first."""
    found = []
    for cell in notebook.cells:
        times = cell.metadata.get("execution", {})
        if "shell.execute_reply" in times:
            begin, end = (datetime.fromisoformat(times[name]) for name in MOMENTS)
            found.append(((end - begin).total_seconds(), " ".join(cell.source.split())[:70]))
    return sorted(found, reverse=True)


def test_lessons_keep_to_their_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a new machine: no downloads, no recorded steps of the model, no results of an earlier run."""
    monkeypatch.setenv("PROFLAB_OFFLINE", "1")
    monkeypatch.delenv("PROFLAB_RECORDINGS", raising=False)
    for name in ("PROFLAB_CACHE", "GPUMODEL_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("runs"))
    taken = {}
    for path in sorted(folder.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        begin = time.perf_counter()
        NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
        taken[path.stem] = time.perf_counter() - begin
        print(f"\n{path.stem:40} {taken[path.stem]:6.1f} s")
        for seconds, words in cell_times(notebook)[:SHOWN]:
            print(f"  {seconds:6.1f} s  {words}")
    print(f"\n{'together':40} {sum(taken.values()):6.1f} s")
    assert max(taken.values()) <= MOST_S
    assert sum(taken.values()) <= MOST_TOGETHER_S
