"""Questions about earlier lessons in JupyterLab: an answer is a button, its reply comes below, the
click is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import v4

from proflab import journal
from proflab.lessons import lessons
from proflab.recall import WIDGET, Answer, Recall, questions
from tests.browser.lab import (
    RED_BOXES,
    THEMES,
    choose,
    console_errors,
    open_notebook,
    running_lab,
    trust,
    wait_for,
)
from tests.browser.pages import hard_to_read
from tests.browser.test_run_all import ENDED, IDLE, run_all
from tools.notebooks.clean import METADATA

BUTTONS = "return [...document.querySelectorAll('.proflab-answer')]"
CUT_OFF = (
    f"{BUTTONS}.filter(one => one.scrollWidth > one.clientWidth || one.scrollHeight >"
    " one.clientHeight).length"
)
REPLY = "return document.querySelector('[role=alert]')?.innerText"
NAME = "notebooks/recall.ipynb"


def write_notebook(root: Path, outputs: list[Any]) -> None:
    """A notebook that asks the questions of lesson 05, with these outputs."""
    (root / "notebooks").mkdir(parents=True)
    cell = v4.new_code_cell(
        "from proflab import lessons, recall\nrecall.ask(lessons.lesson('05'))", outputs=outputs
    )
    nbformat.write(v4.new_notebook(cells=[cell], metadata=METADATA), root / NAME)


def wrong_answer() -> tuple[str, Answer]:
    """Id of the first question of lesson 05, and a wrong answer to it."""
    first = questions(lessons()["05"])[0]
    return first.id, next(answer for answer in first.answers if not answer.right)


def _shown(browser: Any) -> Any:
    """The buttons; a click on Run All that met a menu which closed is made again."""
    if browser.execute_script(IDLE) and not browser.execute_script(ENDED):
        run_all(browser)
        return None
    return browser.execute_script(BUTTONS)


@pytest.mark.parametrize("theme", THEMES)
def test_a_wrong_answer_gets_its_reply_and_is_in_the_journal(
    theme: str, tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / "runs"))
    root, home = tmp_path / "root", tmp_path / "home"
    write_notebook(root, [])
    choose(home, theme)
    id, chosen = wrong_answer()
    with running_lab(home, root) as address:
        open_notebook(browser, address, NAME, root)
        wait_for(browser, lambda: browser.execute_script(IDLE))
        buttons = wait_for(browser, lambda: _shown(browser))
        button = next(one for one in buttons if one.text == chosen.text)
        browser.execute_script("arguments[0].focus()", button)
        browser.switch_to.active_element.send_keys("\n")  # as by the keyboard
        assert chosen.reply in wait_for(browser, lambda: browser.execute_script(REPLY))
        assert button.text == f"✗ {chosen.text}"
        (record,) = wait_for(browser, lambda: journal.read(tmp_path / "runs/progress.jsonl"))
        assert (record["question"], record["answer"], record["right"]) == (id, chosen.text, False)
        assert browser.execute_script(CUT_OFF) == 0
        texts, hard = hard_to_read(browser, ".jp-OutputArea-output", "svg")
        assert texts > len(buttons)
        assert hard == []
        assert browser.execute_script(RED_BOXES) == []
        assert console_errors(browser) == []


def test_without_widgets_an_answer_unfolds(tmp_path: Path, browser: Any) -> None:
    bundle = Recall(questions(lessons()["05"]))._repr_mimebundle_()
    output = v4.new_output(
        "display_data", {kind: text for kind, text in bundle.items() if kind != WIDGET}
    )
    root, home = tmp_path / "root", tmp_path / "home"
    write_notebook(root, [output])
    choose(home, "light")
    trust(home, root / NAME)
    with running_lab(home, root) as address:
        open_notebook(browser, address, NAME, root)
        find = (
            "return [...document.querySelectorAll('summary')].find(one =>"
            " one.innerText.replaceAll('\\u00a0', ' ') === arguments[0])"
        )
        _, chosen = wrong_answer()
        summary = wait_for(browser, lambda: browser.execute_script(find, chosen.text))
        browser.execute_script("arguments[0].focus()", summary)
        browser.switch_to.active_element.send_keys("\n")
        shown = "return arguments[0].parentElement.open && arguments[0].parentElement.innerText"
        assert chosen.reply in wait_for(browser, lambda: browser.execute_script(shown, summary))
