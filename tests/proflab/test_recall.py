"""Questions about earlier lessons: what a file of them must be, that nothing gives the answers
away, what is kept.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from proflab import journal, recall
from proflab.errors import CourseError
from proflab.lessons import Lesson, lessons
from proflab.progress import progress_table, room_table
from proflab.recall import FILE, WIDGET, Asked, Recall, first_answers, questions

ASKED = {number: questions(lesson) for number, lesson in lessons().items()}
EVERY = [one for asked in ASKED.values() for one in asked]

ONE = """
[[question]]
id = "02.q1"
of = "01"
text = "What does busy mean?"
right = ["Something ran.", "No more than that."]
wrong = [["It worked.", "It may wait."], ["It was `fast`.", "Look at power."]]
"""


def made(folder: Path, text: str) -> Lesson:
    """Lesson 02 of a course of its own, with these questions."""
    (folder / "02_step").mkdir(exist_ok=True)
    (folder / "02_step" / FILE).write_text(text)
    return Lesson(folder / "02_step", "Why?", "clock", 5)


def place(one: Asked) -> int:
    """Where the right answer stands."""
    return [answer.right for answer in one.answers].index(True)


def test_each_lesson_but_the_first_asks_three_questions() -> None:
    assert {number: len(asked) for number, asked in ASKED.items()} == {
        number: 3 * (number != "00") for number in lessons()
    }
    assert max(Counter(one.id for one in EVERY).values()) == 1


def test_neither_place_nor_length_tells_the_right_answer() -> None:
    places = Counter(map(place, EVERY))
    assert all(len(EVERY) / 5 <= places[number] <= len(EVERY) / 2 for number in range(3))
    assert all(len({*map(place, asked)}) > 1 for asked in ASKED.values() if asked)
    lengths = [[len(answer.text) for answer in one.answers] for one in EVERY]
    right = [sizes[place(one)] for one, sizes in zip(EVERY, lengths, strict=True)]
    for extreme in (max, min):
        told = sum(size == extreme(sizes) for size, sizes in zip(right, lengths, strict=True))
        assert told <= len(EVERY) / 2, extreme


def needs(number: str) -> set[str]:
    """The lessons that a lesson says it needs, and those that these need."""
    text = " ".join(
        lessons()[number].source.read_text(encoding="utf-8").replace("\n#", " ").split()
    )
    said = re.search(r"You need lessons? ((?:\d\d(?:, | and )?)+)", text)
    direct = set(re.findall(r"\d\d", said[1])) if said else set()
    return direct.union(*map(needs, direct)) | {"00"} if number != "00" else set()


@pytest.mark.parametrize(
    "number", [number for number, lesson in lessons().items() if not lesson.core]
)
def test_an_elective_asks_about_lessons_that_it_needs(number: str) -> None:
    assert {one.of for one in ASKED[number]} <= needs(number)


def test_questions_go_back_further_than_to_the_lesson_before() -> None:
    core = [one for one in EVERY if lessons()[one.id[:2]].core]
    assert sum(int(one.of) < int(one.id[:2]) - 1 for one in core) > len(core) / 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ([('id = "02.q1"', 'id = "03.q1"')], "the id has to be one like 02.q1"),
        ([('of = "01"', 'of = "02"')], "which is none before 02"),
        ([('of = "01"', "of = 1")], "1 is no text"),
        ([(', ["It was `fast`.", "Look at power."]', "")], "it has 2 answers; 3 to 4 are asked"),
        ([("Look at power.", "It may wait.")], "two of it have the same reply"),
        ([("It worked.", "Something ran.")], "two of it have the same answer"),
        ([("It may wait.", "")], "this reply has 0 words"),
        ([("It worked.", "so " * 13)], "this answer has 13 words, of at most 12"),
        (
            [('right = ["Something ran.", "No more than that."]', "")],
            "'right'; each question needs",
        ),
        ([('"No more than that."', '"No more than that.", "And?"')], "too many values"),
        ([("[[question]]", "[[questions]]")], "'question'; each question needs"),
        ([("text =", "text")], "each question needs"),
    ],
)
def test_a_file_that_can_not_be_used_is_named_with_what_is_wrong(
    tmp_path: Path, change: list[tuple[str, str]], words: str
) -> None:
    text = ONE
    for old, new in change:
        text = text.replace(old, new)
    with pytest.raises(CourseError, match=re.escape(words)) as caught:
        questions(made(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "02_step" / FILE))
    assert len(str(caught.value).splitlines()) == 1


def test_two_questions_with_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="2 questions are called"):
        questions(made(tmp_path, ONE + ONE))


def test_the_order_of_answers_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = (questions(made(tmp_path, ONE)) for _ in range(2))
    assert first == second


def test_a_page_and_a_terminal_show_answers_and_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson = made(tmp_path, ONE)
    recall.ask(lesson)
    text = capsys.readouterr().out
    assert "1. (Lesson 01) What does busy mean?" in text
    assert "Not so: It may wait." in text
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = Recall(questions(lesson))._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/html"].count("<details>") == 3
    assert "<code>fast</code>" in bundle["text/html"]


def test_a_click_shows_its_reply_and_is_noted_and_first_answers_count(tmp_path: Path) -> None:
    from ipywidgets import Button

    asked = questions(made(tmp_path, ONE))
    assert WIDGET in Recall(asked)._repr_mimebundle_()
    box = recall.buttons(asked)
    buttons = {part.description: part for part in box.children if isinstance(part, Button)}
    said = box.children[-1]
    buttons["It was fast."].click()
    assert "Look at power." in said.value
    assert 'role="alert"' in said.value
    buttons["Something ran."].click()
    assert "No more than that." in said.value
    records = journal.read(journal.runs_folder() / "progress.jsonl")
    assert [record["right"] for record in records] == [False, True]
    assert first_answers(records) == {"02.q1": ("It was `fast`.", False)}
    note = progress_table(records, []).note.splitlines()
    assert note[1:] == [
        "Questions about earlier lessons: 0 of 1 first answers right.",
        "Wrong at first in 02.q1, 1 time: It was `fast`.",
    ]


def test_a_click_that_can_not_be_noted_still_gets_its_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ipywidgets import Button

    (tmp_path / "file").touch()
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / "file/runs"))
    box = recall.buttons(questions(made(tmp_path, ONE)))
    next(part for part in box.children if isinstance(part, Button)).click()
    assert "border-left" in box.children[-1].value
    assert "could not be written" in capsys.readouterr().err


def test_a_room_sees_which_wrong_answers_are_given_most_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for name, answers in {
        "a": ["busy"],
        "b": ["busy", "right"],
        "c": ["idle"],
        "d": ["right"],
    }.items():
        monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / name))
        for answer in answers:
            record = {
                "question": "02.q1",
                "event": "recall",
                "answer": answer,
                "right": answer == "right",
            }
            journal.append("progress.jsonl", record)
        files.append(tmp_path / name / "progress.jsonl")
    assert room_table(files, []).note.splitlines() == [
        "Questions about earlier lessons: 1 of 4 first answers right.",
        "Wrong at first in 02.q1, 2 times: busy",
        "Wrong at first in 02.q1, 1 time: idle",
    ]
