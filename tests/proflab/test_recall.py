"""Questions about earlier lessons: what is asked, that nothing gives the answers away, what is
kept.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from proflab import journal, recall
from proflab.exercises.model import PROGRESS_FILE
from proflab.lessons import Lesson, lessons
from proflab.recall import FILE, WIDGET, Asked, Recall, first_answers, questions

ASKED = {number: questions(lesson) for number, lesson in lessons().items()}
EVERY = [one for asked in ASKED.values() for one in asked]
LONGEST = {"question": 30, "answer": 12, "reply": 30}

ONE = """
[[question]]
id = "02.q1"
of = "01"
text = "What does busy mean?"
right = ["Something ran.", "No more than that."]
wrong = [["It worked.", "It may wait."], ["It was `fast`.", "Look at power."]]
"""


@pytest.fixture
def lesson(tmp_path: Path) -> Lesson:
    """Lesson 02 of another course, with one question."""
    (tmp_path / "02_step").mkdir()
    (tmp_path / "02_step" / FILE).write_text(ONE)
    return Lesson(tmp_path / "02_step", "Why?", 5)


def place(one: Asked) -> int:
    """The place of the right answer."""
    return [answer.right for answer in one.answers].index(True)


def test_each_lesson_but_the_first_asks_three_questions() -> None:
    counts = {number: len(asked) for number, asked in ASKED.items()}
    assert counts == {number: 3 * (number != "00") for number in lessons()}
    assert max(Counter(one.id for one in EVERY).values()) == 1


def test_each_question_is_short_and_about_an_earlier_lesson() -> None:
    for number, asked in ASKED.items():
        for one in asked:
            assert re.fullmatch(rf"{number}\.q\d", one.id)
            assert one.of in lessons()
            assert one.of < number
            assert 3 <= len(one.answers) <= 4
            answers, replies = zip(*((a.text, a.reply) for a in one.answers), strict=True)
            texts = {"question": [one.text], "answer": answers, "reply": replies}
            for name, several in texts.items():
                assert len({*several}) == len(several), one.id
                assert all(0 < len(text.split()) <= LONGEST[name] for text in several), one.id


def test_neither_place_nor_length_tells_the_right_answer() -> None:
    places = Counter(map(place, EVERY))
    assert all(len(EVERY) / 5 <= places[number] <= len(EVERY) / 2 for number in range(3))
    lengths = [[len(answer.text) for answer in one.answers] for one in EVERY]
    right = [sizes[place(one)] for one, sizes in zip(EVERY, lengths, strict=True)]
    for extreme in (max, min):
        told = sum(size == extreme(sizes) for size, sizes in zip(right, lengths, strict=True))
        assert told <= len(EVERY) / 2, extreme


def test_a_page_and_a_terminal_show_answers_and_replies(
    lesson: Lesson, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert questions(lesson) == questions(lesson)
    recall.ask(lesson)
    text = capsys.readouterr().out
    assert all(words in text for words in ("What does busy mean?", "Something ran.", "It may wait"))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = Recall(questions(lesson))._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/html"].count("<details>") == 3
    assert "<code>fast</code>" in bundle["text/html"]


def test_a_click_shows_its_reply_and_is_noted(lesson: Lesson, bench: Path) -> None:
    from ipywidgets import Button

    shown = Recall(questions(lesson))
    assert WIDGET in shown._repr_mimebundle_()
    box = shown.buttons()
    buttons = {part.description: part for part in box.children if isinstance(part, Button)}
    for answer, reply in (("It was fast.", "Look at power."), ("Something ran.", "No more")):
        buttons[answer].click()
        assert reply in box.children[-1].value
        assert 'role="alert"' in box.children[-1].value
    records = journal.read(bench / PROGRESS_FILE)
    assert [record["right"] for record in records] == [False, True]
    assert first_answers([{"event": "check"}, *records]) == {"02.q1": ("It was `fast`.", False)}
