"""JupyterLab as `make lab` starts it: the address that it prints opens lesson 00, whose links lead on."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.patience import PATIENCE_S

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*")


def lab_options() -> list[str]:
    """What the Makefile gives to JupyterLab."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    line = re.search(r"^lab:.*\n\t\$\(BIN\)/jupyter lab (.+)$", makefile, re.MULTILINE)[1]
    return shlex.split(line.replace("$(CURDIR)", str(REPOSITORY)).replace("$(ROOT_FLAG)", "--allow-root"))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address that JupyterLab prints."""
    homes = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    command = [sys.executable, "-m", "jupyterlab", *lab_options(), "--no-browser", "--ServerApp.port_retries=50"]
    server = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | homes, stderr=subprocess.PIPE, text=True)
    try:
        yield next(found[0] for found in map(ADDRESS.search, server.stderr) if found)
    finally:
        server.send_signal(signal.SIGTERM)  # on which it ends the notebook's kernel too
        server.stderr.read()
        server.wait(PATIENCE_S)
        server.stderr.close()


def test_the_printed_address_opens_lesson_00_and_its_links_lead_on(address: str, browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, PATIENCE_S)
    browser.get(address)
    title = "return document.querySelector('.jp-Notebook h1')?.innerText"
    assert "can I trust my setup" in wait.until(lambda _: browser.execute_script(title))
    link = "return [...document.querySelectorAll('.jp-Notebook a')].find(a => a.innerText === 'Course')"
    browser.execute_script("arguments[0].click()", wait.until(lambda _: browser.execute_script(link)))
    opened = "return [...document.querySelectorAll('.lm-TabBar-tabLabel')].map(tab => tab.innerText)"
    wait.until(lambda _: "README.md" in browser.execute_script(opened))
