"""Notebooks of sections of several lessons, by a recipe: what they take, what they refuse, and the
course's own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest

from proflab import case, start
from proflab.errors import CourseError
from tests.conftest import REPOSITORY
from tests.proflab.test_notebook_build import write_lesson
from tools.notebook_lint import python_of
from tools.notebooks import ELSEWHERE, QUESTION_BOX, Folders, build, read_sources
from tools.notebooks.__main__ import main
from tools.notebooks.excerpt import excerpts
from tools.notebooks.minutes import needed, sections
from tools.notebooks.names import names_of

MINUTES_OF_A_TALK = 90

LESSON = """\
# %% [markdown]
# # A clock
#
# Text that is not taken.

# %%
import statistics

# %%
times = [3, 1, 2]

# %%
nobody_needs_this = 0

# %% language="bash"
# echo made > $FOLDER/settings.cfg

# %% [markdown]
# ## Sort
#
# As [others][do] do.
#
# ## Middle
#
# See [the page][page], and [again][do].
#
# ```
# ## no heading
# ```
#
# [do]: https://example.org/do
# [page]: https://example.org/page

# %%
print(statistics.median(times))

# %% language="bash"
# cat $FOLDER/settings.cfg

# %%
# 3 minutes: what is in the middle?
q = exercise("00.1", times)
# solution
answer = 2
# end solution
q.check(answer)

# %% [markdown]
# ## After

# %%
times.append(9)

# %% [markdown]
# ## End

# %%
print(max(times))
"""

RECIPE = """\
title = "In short"
opening = "One lesson, in short."
closing = "Goodbye."
minutes = 5
waiting = 0

[[part]]
lesson = "00"
heading = "Part 1"
text = "What follows is of lesson 00."
section = [{name = "Middle"}, {name = "End", title = "The largest", text = "At last:"}]
"""

FROM = "*From [lesson 00](00_clock.ipynb), for the cells below: run it unread.*"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.chdir(tmp_path)
    folders = Folders()
    write_lesson(folders.lessons / "00_clock", LESSON)
    write_recipe(folders, RECIPE)
    return folders


def write_recipe(course: Folders, text: str) -> None:
    path = course.lessons / "90_short/recipe.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def cells(text: str) -> list[str]:
    return [cell.source for cell in nbformat.reads(text, 4).cells]


def test_sections_come_with_the_code_that_they_need_and_no_more(course: Folders) -> None:
    texts = build(course)
    assert cells(texts[course.notebooks / "90_short.ipynb"])[1:-1] == [
        "# In short\n\nOne lesson, in short.",
        "## Part 1\n\nWhat follows is of lesson 00.",
        FROM,
        ELSEWHERE.format("../"),
        "import statistics",
        "times = [3, 1, 2]",
        "%%bash\necho made > $FOLDER/settings.cfg",
        "## Middle\n\nSee [the page][page], and [again][do].\n\n```\n## no heading\n```\n\n"
        "[do]: https://example.org/do\n[page]: https://example.org/page",
        "print(statistics.median(times))",
        "%%bash\ncat $FOLDER/settings.cfg",
        f"### Exercise 00.1 (3 minutes)\n\n{QUESTION_BOX}\n\n"
        "What is in the middle?\n\n</blockquote>",
        'q = exercise("00.1", times)\nanswer = ...\nq.check(answer)',
        FROM,
        "times.append(9)",
        "At last:",
        "## The largest",
        "print(max(times))",
        "Goodbye.",
    ]
    combined = cells(texts[course.combined / "90_short.ipynb"])
    assert 'q = exercise("00.1", times)\nanswer = 2\nq.check(answer)' in combined
    assert combined[-2].endswith('all_proven("00.1")')


def test_the_lesson_itself_stays_as_it_is(course: Folders) -> None:
    (course.lessons / "90_short/recipe.toml").rename("recipe.toml")
    before = build(course)
    write_recipe(course, RECIPE)
    assert build(course).items() >= before.items()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('lesson = "00"', 'lesson = "07"', "there is no lesson '07'"),
        ('lesson = "00"', "lesson = 0", "there is no lesson 0"),
        (
            'name = "Middle"',
            'name = "Midle"',
            "lesson 00 has no section 'Midle': did you mean Middle?",
        ),
        ('{name = "Middle"}, ', '{name = "After"}, {name = "Middle"}, ', "stand in another order"),
        ('{name = "Middle"}, ', '{name = "End"}, ', "stand in another order than there, or twice"),
        (
            'title = "The largest"',
            'title = "Middle"',
            "two sections are called 'Middle'; give one a `title`",
        ),
        ('heading = "Part 1"\n', "", "heading is missing"),
        (
            "[[part]]",
            '[[part]]\nlesson = "00"\nheading = ""\ntext = ""\nsection = []\n\n[[part]]',
            "00 has two parts",
        ),
        ('name = "Middle"', 'title = "Middle"', "name is missing"),
        ("minutes = 5\n", "", "minutes is missing"),
        ("minutes = 5", "minutes =", "no TOML"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused_in_one_line(
    course: Folders, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    write_recipe(course, RECIPE.replace(old, new))
    assert main(["build"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: lessons/90_short/recipe.toml: ")
    assert said in error
    assert error.count("\n") == 1


def test_a_recipe_is_checked_and_built_like_a_lesson(
    course: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build"]) == 0
    write_recipe(course, RECIPE.replace("Goodbye", "See you"))
    assert main(["build", "--check"]) == 1
    assert "notebooks/90_short.ipynb: differs" in capsys.readouterr().out
    assert main(["minutes"]) == 1
    assert "90   10 minutes by the rule, recipe.toml says 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "needs", "gives"),
    [
        ("a = b", {"b"}, {"a"}),
        ("a = 1\nprint(a)", {"print"}, {"a"}),
        ("a += 1", {"a"}, {"a"}),
        ("a['x'].y = 1", {"a"}, {"a"}),
        ("a.append(b)", {"a", "b"}, {"a"}),
        ("for a in b:\n    c = a", {"b"}, {"a", "c"}),
        ("with a as b:\n    b.c", {"a"}, {"b"}),
        ("try:\n    a\nexcept b as c:\n    d = c", {"a"}, {"c", "d"}),
        ("if (a := b):\n    a", {"b"}, {"a"}),
        ("def a(b, c=d):\n    e = 1\n    return b + e + f", {"d", "f"}, {"a"}),
        ("a = [b for b in c if d]", {"c", "d"}, {"a"}),
        ("import a.b, c as d\nfrom e import f", set(), {"a", "d", "f"}),
    ],
)
def test_names_that_a_cell_needs_and_gives(source: str, needs: set[str], gives: set[str]) -> None:
    found = names_of(source)
    assert (found.needs, found.gives) == (needs, gives)


def test_files_of_the_lesson_s_folder_are_names_too() -> None:
    assert names_of("%%bash\ncat $FOLDER/a.cfg > $FOLDER/b/c").files == {"a.cfg", "b"}
    assert names_of("read(lesson.folder / 'a/b', folder / 'c', other / 'd')").files == {"a", "c"}


def test_the_notebook_of_a_talk_takes_the_minutes_that_it_states_and_no_more_than_a_talk_has() -> (
    None
):
    folder = REPOSITORY / "lessons"
    made = {one.lesson.folder.name: one for one in excerpts(folder, read_sources(folder))}
    assert {name: one.lesson.minutes for name, one in made.items()} == {
        n: needed(one) for n, one in made.items()
    }
    talk = made["90_minutes"].lesson.minutes
    assert talk <= MINUTES_OF_A_TALK
    assert f"takes about {talk} minutes, waiting included" in (
        REPOSITORY / "docs/instructor.md"
    ).read_text(encoding="utf-8")


def test_no_later_cell_of_the_core_takes_a_name_that_an_exercise_needs() -> None:
    """Who goes back to an exercise would get another value under its name, and no clue."""
    for source in read_sources(REPOSITORY / "lessons"):
        code = [cell.source for cell in source.notebook.cells if cell.cell_type == "code"]
        names = [names_of(text if text.startswith("%%") else python_of(text)) for text in code]
        for place, text in enumerate(code):
            if source.lesson.core and "= exercise(" in text:
                later = set().union(*(one.gives for one in names[place + 1 :]))
                assert not names[place].needs & later, (source.number, text.splitlines()[1])


def test_the_parts_of_a_talk_state_minutes_that_are_enough_and_fit_together() -> None:
    folder = REPOSITORY / "lessons"
    (made,) = excerpts(folder, read_sources(folder))
    stated, by_rule = [], []
    for heading, minutes in sections(made):
        if heading.startswith("Part "):
            text = next(
                cell.source
                for cell in made.notebook.cells
                if cell.source.startswith(f"## {heading}")
            )
            stated.append(int(re.search(r"About (\d+) minutes", text)[1]))
            by_rule.append(0.0)
        if by_rule:
            by_rule[-1] += minutes
    assert len(stated) == 4
    assert all(rule <= said <= 1.6 * rule for said, rule in zip(stated, by_rule, strict=True)), (
        by_rule
    )
    assert sum(stated) <= MINUTES_OF_A_TALK


def test_a_function_finds_what_is_made_after_it(course: Folders) -> None:
    lesson = (
        "# %% [markdown]\n# # A clock\n# %%\ndef late():\n    return word\n# %%\nword = 1\n"
        "# %% [markdown]\n# ## Middle\n# %%\nprint(late())\n# %% [markdown]\n# ## End\n"
    )
    write_lesson(course.lessons / "00_clock", lesson)
    assert "word = 1" in cells(build(course)[course.notebooks / "90_short.ipynb"])


TWO = """\
# %% [markdown]
# # A {name}
# %%
import proflab

lesson = proflab.start("{number}")
# %% [markdown]
# ## Of {name}
#
# In this lesson.
# %% language="bash"
# echo > $FOLDER/{name}.txt
# %%
word = {number}
# %%
print(lesson.folder, word)
"""

BOTH = RECIPE.replace(
    '{name = "Middle"}, {name = "End", title = "The largest", text = "At last:"}',
    '{name = "Of bell"}',
)
BOTH += """
[[part]]
lesson = "01"
heading = "Part 2"
text = ""
section = [{name = "Of gong"}]
"""


def two_lessons(course: Folders, second: str) -> None:
    write_lesson(
        course.lessons / "00_clock", TWO.format(name="bell", number="00").replace("= 00", "= 0")
    )
    write_lesson(course.lessons / "01_other", second)
    write_recipe(course, BOTH)


def test_each_part_keeps_its_lesson_its_folder_and_its_names(course: Folders) -> None:
    two_lessons(
        course, TWO.format(name="gong", number="01").replace("word", "other").replace("= 01", "= 1")
    )
    made = cells(build(course)[course.notebooks / "90_short.ipynb"])
    assert 'import proflab\n\nlesson_00 = proflab.start("00", within="90_short")' in made
    assert {"print(lesson_00.folder, word)", "print(lesson_01.folder, other)"} <= set(made)
    assert "## Of gong\n\nIn this notebook." in made


@pytest.mark.parametrize("taken", ["word", "$FOLDER/bell.txt"])
def test_a_name_or_file_that_a_later_part_takes_is_refused(
    course: Folders, capsys: pytest.CaptureFixture[str], taken: str
) -> None:
    """Who goes back to the first part would go on with that of the second."""
    renamed = TWO.format(name="gong", number="01").replace("= 01", "= 1")
    two_lessons(
        course,
        renamed
        if taken == "word"
        else renamed.replace("word", "other").replace("$FOLDER/gong.txt", taken),
    )
    assert main(["build"]) == 2
    assert f"lesson 01 gives '{taken}' anew, which lesson 00 needs" in capsys.readouterr().err


def test_the_parts_of_a_notebook_share_their_folder_and_the_case(
    bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASE", raising=False)
    monkeypatch.setenv("FOLDER", "")
    begun = [start(number, within="90_minutes") for number in ("00", "14")]
    assert {one.folder for one in begun} == {bench / "90_minutes"}
    assert os.environ["CASE"] == case.command("00")
    monkeypatch.setenv("PROFLAB_RUNS", str(bench / "90_minutes"))
    assert start("00", within="90_minutes").folder == bench / "90_minutes"
    monkeypatch.setenv("PROFLAB_RUNS", str(bench))
    assert start("14").folder == bench / "14"
    assert os.environ["CASE"] == case.command("14")


def test_a_broken_recipe_raises_an_error_of_the_course(course: Folders) -> None:
    write_recipe(course, "title = ")
    with pytest.raises(CourseError, match="no TOML"):
        excerpts(course.lessons, read_sources(course.lessons))
