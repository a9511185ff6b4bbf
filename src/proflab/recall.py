"""Questions at the start of a lesson about what earlier lessons taught: each answer has a reply of
its own, a click away.

The file `questions.toml` beside a lesson holds them:

    [[question]]
    id = "01.q1"
    of = "00"                      # the lesson that taught it
    text = "What does ...?"
    right = ["An answer.", "Why it is so."]
    wrong = [["Another one.", "Why it tempts, and what is so."], ["A third.", "..."]]
"""

from __future__ import annotations

import contextlib
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from proflab import journal
from proflab.display import SUMMARY, Notice, inline_html, show
from proflab.errors import CourseError
from proflab.exercises.model import PROGRESS_FILE
from proflab.lessons import Lesson
from tidyprof.harmless import html_text

if TYPE_CHECKING:
    from ipywidgets import Button, Widget

FILE = "questions.toml"

ANSWERS = (3, 4)
"""Number of answers to a question, at least and at most."""

MOST_WORDS = {"question": 30, "answer": 12, "reply": 30}
"""Most words of each: a question is read in a quarter of a minute, see tools.notebooks.minutes."""

HEADING = "Do you remember? Choose an answer to each question: a reply follows."

WIDGET = "application/vnd.jupyter.widget-view+json"
"""The type of an output that only a notebook with a kernel can show."""

_ASKED = "line-height:1.4;margin-top:0.6em"
_BOX = "padding:0.2em 0.9em;max-width:60em"
_LOOKS = (
    "<style>.proflab-answer.jupyter-button{white-space:normal;text-align:left;line-height:1.4;"
    "padding:0.3em 0.8em;font-size:inherit}</style>"
)
"""A button of ipywidgets is one line of centred text, which is cut if it is too long: this style
folds it.
"""


@dataclass(frozen=True)
class Answer:
    """One answer, the reply to whoever chooses it, and whether it is right."""

    text: str
    reply: str
    right: bool

    @property
    def notice(self) -> Notice:
        """The reply as it is shown."""
        return Notice(
            "Right" if self.right else "Not so", self.reply, "passed" if self.right else "wrong"
        )


@dataclass(frozen=True)
class Asked:
    """One question with its answers in the order in which they are shown; `of` is the lesson that
    taught it.
    """

    id: str
    of: str
    text: str
    answers: tuple[Answer, ...]

    @property
    def words(self) -> int:
        """Number of words to read before one can choose."""
        return sum(
            len(text.split()) for text in (self.text, *(answer.text for answer in self.answers))
        )


@dataclass(frozen=True, repr=False)
class Recall:
    """The questions of a lesson: buttons in a notebook, answers to unfold on a page, lines on a
    terminal.
    """

    questions: Sequence[Asked]

    def __str__(self) -> str:
        asked = enumerate(self.questions, 1)
        return "\n".join(
            [HEADING, *(line for number, one in asked for line in _lines(number, one))]
        )

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": str(self), "text/html": self.page()}
        # An environment that is older than these questions lacks ipywidgets: the page does, too.
        with contextlib.suppress(ImportError):
            bundle[WIDGET] = buttons(self.questions)._repr_mimebundle_()[WIDGET]
        return bundle

    def page(self) -> str:
        """HTML without a script: each answer unfolds into its reply."""
        asked = "".join(
            f"<p>{_text(number, one)}</p>{_unfolding(one)}"
            for number, one in enumerate(self.questions, 1)
        )
        return f'<div style="{_BOX}"><p><strong>{HEADING}</strong></p>{asked}</div>'


def ask(lesson: Lesson) -> None:
    """Show the lesson's questions. Raises CourseError for a file of questions that can't be
    used.
    """
    show(Recall(questions(lesson)))


def questions(lesson: Lesson) -> tuple[Asked, ...]:
    """The questions of a lesson in order, none if it has no file of them; raises CourseError for a
    file that can't be used.
    """
    path = lesson.folder / FILE
    try:
        found = (
            tomllib.loads(path.read_text(encoding="utf-8"))["question"] if path.is_file() else []
        )
        asked = tuple(map(_read, found))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CourseError(
            f"{path}: {error}; each question needs `id`, `of`, `text`, `right` and `wrong`, see"
            " proflab.recall"
        ) from None
    for problem in _problems(lesson.number, asked):
        raise CourseError(f"{path}: {problem}")
    return asked


def _read(fields: Mapping[str, Any]) -> Asked:
    (right, reply), wrong = fields["right"], fields["wrong"]
    answers = [Answer(right, reply, True), *(Answer(text, said, False) for text, said in wrong)]
    texts = [fields[name] for name in ("id", "of", "text")]
    texts += [text for answer in answers for text in (answer.text, answer.reply)]
    if other := [text for text in texts if not isinstance(text, str)]:
        raise TypeError(f"{other[0]!r} is no text")
    random.Random(fields["text"]).shuffle(answers)  # the same order each time, and for everybody
    name, of, text = texts[:3]
    return Asked(name, of, text, tuple(answers))


def _problems(lesson: str, asked: Sequence[Asked]) -> Iterator[str]:
    for id, times in Counter(one.id for one in asked).items():
        if times > 1:
            yield f"{times} questions are called {id}: number them"
    for one in asked:
        yield from (f"question {one.id}: {problem}" for problem in _problems_of(lesson, one))


def _problems_of(lesson: str, one: Asked) -> Iterator[str]:
    least, most = ANSWERS
    if not re.fullmatch(rf"{lesson}\.q\d", one.id):
        yield f"the id has to be one like {lesson}.q1"
    if not (re.fullmatch(r"\d\d", one.of) and one.of < lesson):
        yield f"it is about lesson {one.of!r}, which is none before {lesson}"
    if not least <= len(one.answers) <= most:
        yield f"it has {len(one.answers)} answers; {least} to {most} are asked"
    for name, texts in {
        "question": [one.text],
        "answer": [answer.text for answer in one.answers],
        "reply": [answer.reply for answer in one.answers],
    }.items():
        # A click records the text of its answer, so equal texts could not be told apart.
        if len({*texts}) < len(texts):
            yield f"two of it have the same {name}"
        for text in texts:
            if not 0 < len(text.split()) <= MOST_WORDS[name]:
                yield (
                    f"this {name} has {len(text.split())} words, of at most {MOST_WORDS[name]}:"
                    f" {text!r}"
                )


def _text(number: int, one: Asked) -> str:
    return inline_html(_asked(number, one))


def _asked(number: int, one: Asked) -> str:
    return f"{number}. (Lesson {one.of}) {one.text}"


def _unfolding(one: Asked) -> str:
    return "".join(
        f"<details>{SUMMARY}{inline_html(answer.text)}</summary>"
        f"{answer.notice._repr_html_()}</details>"
        for answer in one.answers
    )


def _lines(number: int, one: Asked) -> Iterator[str]:
    yield _asked(number, one)
    yield from (
        f"   {letter}) {answer.text}" for letter, answer in zip("abcd", one.answers, strict=False)
    )
    for letter, answer in zip("abcd", one.answers, strict=False):
        yield f"   To {letter}: {answer.notice}"


def buttons(asked: Sequence[Asked]) -> Widget:
    """A button for each answer, which shows its reply below the question and records the click."""
    from ipywidgets import HTML, Layout, VBox

    parts: list[Widget] = [HTML(f"{_LOOKS}<strong>{html_text(HEADING)}</strong>")]
    for number, one in enumerate(asked, 1):
        said = HTML(layout=Layout(margin="0"))
        parts += [
            HTML(f'<div style="{_ASKED}">{_text(number, one)}</div>'),
            *_choices(number, one, said),
            said,
        ]
    return VBox(parts, layout=Layout(max_width="60em", padding="0.2em 0.9em"))


def _choices(number: int, one: Asked, said: Widget) -> Iterator[Button]:
    from ipywidgets import Button, Layout

    for answer in one.answers:
        looks = Layout(width="auto", height="auto")
        text = answer.text.replace("`", "")
        button = Button(description=text, tooltip=f"An answer to question {number}", layout=looks)
        button.add_class("proflab-answer")
        button.on_click(partial(_chosen, one, answer, said))
        yield button


def _chosen(one: Asked, answer: Answer, said: Widget, button: Button) -> None:
    mark = "✓" if answer.right else "✗"
    button.description = f"{mark} {button.description.lstrip('✓✗ ')}"
    # A screen reader says what comes with this role.
    said.value = f'<div role="alert">{answer.notice._repr_html_()}</div>'
    record = {"question": one.id, "event": "recall", "answer": answer.text, "right": answer.right}
    journal.append(PROGRESS_FILE, record)


def first_answers(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, bool]]:
    """The first answers of one learner: id of the question -> the answer, and whether it was
    right.
    """
    found: dict[str, tuple[str, bool]] = {}
    for record in records:
        if record.get("event") == "recall" and isinstance(record.get("question"), str):
            found.setdefault(
                record["question"], (str(record.get("answer")), record.get("right") is True)
            )
    return found
