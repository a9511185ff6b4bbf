"""JupyterLab as `make lab` starts it: the address that it prints opens lesson 00, whose links lead
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import (
    running_lab,
    wait_for,
)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address that JupyterLab prints."""
    with running_lab(tmp_path) as printed:
        yield printed


def test_the_printed_address_opens_lesson_00_and_its_links_lead_on(
    address: str, browser: Any
) -> None:
    browser.get(address)
    title = "return document.querySelector('.jp-Notebook h1')?.innerText"
    assert "can I trust my setup" in wait_for(browser, lambda: browser.execute_script(title))
    link = (
        "return [...document.querySelectorAll('.jp-Notebook a')].find(a => a.innerText ==="
        " 'Course')"
    )
    browser.execute_script(
        "arguments[0].click()", wait_for(browser, lambda: browser.execute_script(link))
    )
    opened = (
        "return [...document.querySelectorAll('.lm-TabBar-tabLabel')].map(tab => tab.innerText)"
    )
    wait_for(browser, lambda: "README.md" in browser.execute_script(opened))
