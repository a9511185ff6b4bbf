"""Questions about earlier lessons, which a lesson shows at its start. Each answer has a reply.

The file `questions.toml` in a lesson's folder contains the questions:

    [[question]]
    id = "01.q1"
    of = "00"                      # the lesson that taught it
    text = "What does ...?"
    right = ["An answer.", "Why it is so."]
    wrong = [["Another one.", "Why it is tempting, and what is true."], ["A third.", "..."]]
"""

from __future__ import annotations

import contextlib
import random
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from proflab import journal
from proflab.display import SUMMARY, Notice, inline_html, show
from proflab.exercises.model import PROGRESS_FILE
from proflab.lessons import Lesson
from tidyprof.escaping import html_text

if TYPE_CHECKING:
    from ipywidgets import Button, Widget

FILE = "questions.toml"

HEADING = "Do you remember? Choose an answer to each question to see a reply."

WIDGET = "application/vnd.jupyter.widget-view+json"
"""MIME type that only notebooks with a running kernel can show."""

_ASKED = "line-height:1.4;margin-top:0.6em"
_BOX = "padding:0.2em 0.9em;max-width:60em"
_LOOKS = (
    "<style>.proflab-answer.jupyter-button{white-space:normal;text-align:left;line-height:1.4;"
    "padding:0.3em 0.8em;font-size:inherit}</style>"
)
"""Style that wraps a button's text. By default, ipywidgets truncates the text to one line."""


@dataclass(frozen=True)
class Answer:
    """One answer, its reply, and True if the answer is right."""

    text: str
    reply: str
    right: bool

    @property
    def notice(self) -> Notice:
        """Reply as a notice for the notebook."""
        heading, tone = ("Right", "passed") if self.right else ("Not quite", "wrong")
        return Notice(heading, self.reply, tone)


@dataclass(frozen=True)
class Asked:
    """One question with its answers in display order. `of` is the lesson that taught the topic."""

    id: str
    of: str
    text: str
    answers: tuple[Answer, ...]

    @property
    def words(self) -> int:
        """Number of words that a learner reads before choosing an answer."""
        texts = (self.text, *(answer.text for answer in self.answers))
        return sum(len(text.split()) for text in texts)


@dataclass(frozen=True, repr=False)
class Recall:
    """Questions of a lesson, shown as buttons in a notebook, folded answers on a page, or plain
    lines.
    """

    questions: Sequence[Asked]

    def _numbered(self) -> Iterator[tuple[str, Asked]]:
        for number, one in enumerate(self.questions, 1):
            yield f"{number}. (Lesson {one.of}) {one.text}", one

    def __str__(self) -> str:
        lines = [HEADING]
        for text, one in self._numbered():
            lines += [text, *(f"   {answer.text} -- {answer.notice}" for answer in one.answers)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": str(self), "text/html": self.page()}
        # Without ipywidgets, the notebook shows the same questions as a page.
        with contextlib.suppress(ImportError):
            bundle[WIDGET] = self.buttons()._repr_mimebundle_()[WIDGET]
        return bundle

    def page(self) -> str:
        """Return HTML without scripts. Each answer unfolds to show its reply."""
        asked = ""
        for text, one in self._numbered():
            asked += f"<p>{inline_html(text)}</p>"
            for answer in one.answers:
                folded = f"{SUMMARY}{inline_html(answer.text)}</summary>"
                asked += f"<details>{folded}{answer.notice._repr_html_()}</details>"
        return f'<div style="{_BOX}"><p><strong>{HEADING}</strong></p>{asked}</div>'

    def buttons(self) -> Widget:
        """Return a button for each answer. Clicking a button shows the reply and logs the
        answer.
        """
        from ipywidgets import HTML, Layout, VBox

        parts: list[Widget] = [HTML(f"{_LOOKS}<strong>{html_text(HEADING)}</strong>")]
        for number, (text, one) in enumerate(self._numbered(), 1):
            said = HTML(layout=Layout(margin="0"))
            parts.append(HTML(f'<div style="{_ASKED}">{inline_html(text)}</div>'))
            parts += [_button(number, one, answer, said) for answer in one.answers]
            parts.append(said)
        return VBox(parts, layout=Layout(max_width="60em", padding="0.2em 0.9em"))


def ask(lesson: Lesson) -> None:
    """Show the lesson's questions."""
    show(Recall(questions(lesson)))


def questions(lesson: Lesson) -> tuple[Asked, ...]:
    """Return the questions of a lesson in order, or an empty tuple if it has no questions.toml."""
    path = lesson.folder / FILE
    found = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"question": []}
    return tuple(map(_read, found["question"]))


def _read(fields: Mapping[str, Any]) -> Asked:
    pairs = [fields["right"], *fields["wrong"]]
    answers = [Answer(text, reply, not place) for place, (text, reply) in enumerate(pairs)]
    random.Random(fields["text"]).shuffle(answers)  # the same order for everyone
    return Asked(fields["id"], fields["of"], fields["text"], tuple(answers))


def _button(number: int, one: Asked, answer: Answer, said: Widget) -> Button:
    from ipywidgets import Button, Layout

    looks = Layout(width="auto", height="auto")
    text = answer.text.replace("`", "")
    button = Button(description=text, tooltip=f"An answer to question {number}", layout=looks)
    button.add_class("proflab-answer")
    button.on_click(partial(_chosen, one, answer, said))
    return button


def _chosen(one: Asked, answer: Answer, said: Widget, button: Button) -> None:
    mark = "✓" if answer.right else "✗"
    button.description = f"{mark} {button.description.lstrip('✓✗ ')}"
    # Screen readers read text with this role aloud.
    said.value = f'<div role="alert">{answer.notice._repr_html_()}</div>'
    record = {"question": one.id, "event": "recall", "answer": answer.text, "right": answer.right}
    journal.append(PROGRESS_FILE, record)


def first_answers(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, bool]]:
    """Return one learner's first answer to each question, and True if the answer was right."""
    found: dict[str, tuple[str, bool]] = {}
    for record in records:
        if record.get("event") == "recall" and isinstance(record.get("question"), str):
            answer = (str(record.get("answer")), record.get("right") is True)
            found.setdefault(record["question"], answer)
    return found
