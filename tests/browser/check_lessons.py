"""The lessons, as they were run, in JupyterLab: no red box on success, and nothing wider than its column.

There are no outputs before the lessons were run, so `make long` asks for this file by its name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.test_lab import ADDRESS, lab_options
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE_S

LESSONS = sorted(path.stem for path in (REPOSITORY / "build/combined").glob("*.ipynb"))
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # else only what is in sight is drawn
    "apputils-extension/themes": {},
}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
ALLOWED_TO_SCROLL = 2
"""Pixels by which rounding may make content wider than its box."""

TOO_WIDE = """
const found = [];
for (const box of document.querySelectorAll('.jp-OutputArea-output, .jp-MarkdownOutput')) {
    if (box.scrollWidth > box.clientWidth + arguments[0])
        found.push(box.scrollWidth + ' in ' + box.clientWidth + ': ' + box.innerText.slice(0, 80));
}
return found;
"""
RED = """
return [...document.querySelectorAll('[data-mime-type="application/vnd.jupyter.stderr"]')]
    .map(box => box.innerText.slice(0, 120));
"""


@pytest.fixture(scope="module", params=THEMES)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of JupyterLab in one of its themes, with its token."""
    folder = tmp_path_factory.mktemp("lab")
    for name, values in SETTINGS.items():
        path = folder / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values or {"theme": THEMES[request.param]}))
    homes = {name: str(folder / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    homes["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    command = [sys.executable, "-m", "jupyterlab", *lab_options(), "--no-browser", "--ServerApp.port_retries=50"]
    server = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | homes, stderr=subprocess.PIPE, text=True)
    try:
        yield next(found[0] for found in map(ADDRESS.search, server.stderr) if found)
    finally:
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        server.wait(PATIENCE_S)
        server.stderr.close()


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_fits_its_window_and_shows_no_red_box(lesson: str, lab: str, browser: Any, tmp_path: Path):
    from selenium.webdriver.support.ui import WebDriverWait

    notebook = json.loads((REPOSITORY / f"build/combined/{lesson}.ipynb").read_text())
    assert any(cell.get("outputs") for cell in notebook["cells"]), "the lesson was not run: make lessons"
    size = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    begin, _, token = lab.partition("/lab/tree/notebooks/00_start_here.ipynb")
    browser.get(f"{begin}/doc/tree/build/combined/{lesson}.ipynb{token}")
    drawn = "return document.querySelectorAll('.jp-Notebook .jp-Cell').length"
    WebDriverWait(browser, PATIENCE_S).until(lambda _: browser.execute_script(drawn) >= len(notebook["cells"]))
    assert browser.execute_script(RED) == []
    assert browser.execute_script(TOO_WIDE, ALLOWED_TO_SCROLL) == []
