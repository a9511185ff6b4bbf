"""JupyterLab as `make lab` starts it, for the browser of the tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import nbformat
from nbformat.sign import NotebookNotary

from tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*")
HOMES = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR")
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

COUNT_OF_CELLS = "return document.querySelectorAll('.jp-Notebook .jp-Cell').length"

RED_BOXES = """
return [...document.querySelectorAll('[data-mime-type$="jupyter.stderr"], \
[data-mime-type$="jupyter.error"]')]
    .map(box => box.innerText.slice(0, 200));
"""
"""What JupyterLab shows on red: errors, and what was written to the error stream."""


def lab_options(root: Path = REPOSITORY) -> list[str]:
    """What the Makefile gives to JupyterLab; `root` is the folder that it serves."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    line = re.search(r"^lab:.*\n\t\$\(BIN\)/jupyter lab (.+)$", makefile, re.MULTILINE)[1]
    return shlex.split(
        line.replace("$(call quoted,$(CURDIR))", shlex.quote(str(root))).replace(
            "$(ROOT_FLAG)", "--allow-root"
        )
    )


@contextmanager
def running_lab(home: Path, root: Path = REPOSITORY) -> Iterator[str]:
    """The address that JupyterLab prints, which opens lesson 00. What it keeps for a user goes into
    `home`.
    """
    homes = {name: str(home / name) for name in HOMES}
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        *lab_options(root),
        "--no-browser",
        "--ServerApp.port_retries=50",
    ]
    server = subprocess.Popen(
        command, cwd=root, env=os.environ | homes, stderr=subprocess.PIPE, text=True
    )
    rest = Thread(target=server.stderr.read)  # or it would wait for a reader when the pipe is full
    try:
        address = next(found[0] for found in map(ADDRESS.search, server.stderr) if found)
        rest.start()
        yield address
    finally:
        server.kill()  # asked to end, it would wait for ever for a kernel that is only starting
        rest.join()  # until the notebooks' kernels have ended too, as they do without a server
        server.wait(PATIENCE_S)
        server.stderr.close()


def trust(home: Path, notebook: Path) -> None:
    """Sign a notebook, as JupyterLab does when somebody saves what was run: its outputs keep their
    style rules.
    """
    data = home / "JUPYTER_DATA_DIR"
    data.mkdir(exist_ok=True)
    NotebookNotary(data_dir=str(data)).sign(nbformat.read(notebook, 4))


def choose(home: Path, theme: str) -> None:
    """Set the theme, and that cells out of sight are drawn as well, for what is opened from now
    on.
    """
    settings = {
        "notebook-extension/tracker": {"windowingMode": "none"},
        "apputils-extension/themes": {"theme": THEMES[theme]},
    }
    write_settings(home, settings)


def write_settings(home: Path, settings: dict[str, dict[str, Any]]) -> None:
    """What a user has set, by the name of the part of JupyterLab."""
    for name, values in settings.items():
        path = home / f"JUPYTERLAB_SETTINGS_DIR/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def open_notebook(browser: Any, address: str, path: str, root: Path = REPOSITORY) -> None:
    """Show only this notebook, next to the side bar in a window 1280 pixels wide, and wait for all
    its cells. `path` counts from the folder that is served.
    """
    set_size(browser, 1280)
    console_errors(browser)  # of other pages
    begin, _, token = address.partition("/lab/tree/notebooks/00_start_here.ipynb")
    browser.get(f"{begin}/lab/tree/{path}{token}&reset")
    cells = len(json.loads((root / path).read_text())["cells"])
    wait_for(browser, lambda: browser.execute_script(COUNT_OF_CELLS) >= cells)


def set_size(browser: Any, width: int, height: int = 900) -> None:
    """Make the window so many pixels wide and high."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def console_errors(browser: Any) -> list[str]:
    """What the browser's console got as errors since this was asked last."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def wait_for(browser: Any, what: Callable[[], Any]) -> Any:
    """Wait until `what()` is true, and return it."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, PATIENCE_S).until(lambda _: what())
