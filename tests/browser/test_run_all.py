"""A lesson as it is shipped, run by JupyterLab's own Run All Cells: no error, no red box, nothing
on the console.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import (
    RED_BOXES,
    choose,
    console_errors,
    open_notebook,
    running_lab,
    wait_for,
)
from tests.conftest import REPOSITORY

LESSONS = sorted(path.stem for path in (REPOSITORY / "notebooks").glob("*.ipynb"))

IDLE = "return document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle'"
ENDED = """
const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]\
.map(prompt => prompt.innerText);
return /\\d/.test(prompts.at(-1)) \
|| document.querySelector('[data-mime-type$="jupyter.error"]') !== null;
"""

ITEM = """
return [...document.querySelectorAll('.lm-MenuBar-itemLabel, .lm-Menu-itemLabel')]
    .find(label => label.innerText === arguments[0] && label.offsetParent !== null);
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves a copy of the notebooks, so that nothing changes in
    the course.
    """
    shutil.copytree(
        REPOSITORY / "notebooks", tmp_path / "notebooks", ignore=lambda *_: ["runs", "data"]
    )
    choose(tmp_path / "home", "light")
    with running_lab(tmp_path / "home", tmp_path) as address:
        yield address


@pytest.mark.long
@pytest.mark.parametrize("lesson", LESSONS)
def test_all_cells_run_as_they_are_shipped(
    lesson: str, lab: str, browser: Any, tmp_path: Path
) -> None:
    open_notebook(browser, lab, f"notebooks/{lesson}.ipynb", tmp_path)
    wait_for(browser, lambda: browser.execute_script(IDLE))
    run_all(browser)
    wait_for(browser, lambda: browser.execute_script(ENDED))
    assert browser.execute_script(RED_BOXES) == []
    assert console_errors(browser) == []


def run_all(browser: Any) -> None:
    """Click on Run, again where JupyterLab closed the menu as it came up or something lay over it,
    then on Run All Cells.
    """
    from selenium.common.exceptions import ElementClickInterceptedException

    def opened() -> Any:
        if not (item := browser.execute_script(ITEM, "Run All Cells")):
            with suppress(ElementClickInterceptedException):
                browser.execute_script(ITEM, "Run").click()
        return item

    wait_for(browser, opened).click()
