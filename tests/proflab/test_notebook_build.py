"""Notebooks from lessons: what is cut, what stays, and that building twice gives the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.notebooks import QUESTION_BOX, Folders, build, stale, write
from tools.notebooks.__main__ import main
from tools.solutions import learner_sources

FIRST = """\
# %% [markdown]
# # Can I trust my clock?

# %%
q = exercise("00.1", 3)
# solution
total = sum(range(4))
answer = total / 2
# end solution
q.check(answer)

# %% tags=["solution"]
print("this is for the solved notebook only")

# %% language="bash"
# # solution
# python -m cifar_train --max-steps 3
# # end solution
# echo done

# %% [markdown] tags=["solution"]
# The answer is three.

# %% [markdown] tags=["given"]
# A fact.
"""

SECOND = """\
# %% [markdown]
# # Where does a step go?

# %%
1 + 1

# %%
1 + 1
"""


def write_lesson(folder: Path, text: str) -> Path:
    """A lesson's folder with this text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lesson.toml").write_text('question = "Why?"\nminutes = 5\ntools = []\n')
    (folder / "lesson.py").write_text(text)
    return folder / "lesson.py"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.chdir(tmp_path)
    folders = Folders()
    write_lesson(folders.lessons / "00_clock", FIRST)
    write_lesson(folders.lessons / "02_step", SECOND)
    return folders


def cells(text: str) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in nbformat.reads(text, as_version=4).cells]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# solution\nanswer = 1", "answer = ..."),
        ("a = 1\n# solution\nanswer = a\nassert answer", "a = 1\nanswer = ..."),
        (
            "# solution\nanswer: float = 1\n# end solution\nq.check(answer)",
            "answer = ...\nq.check(answer)",
        ),
        (
            "# solution\nhelper = 1\nanswer = helper\n# end solution\nq.check(answer)",
            "answer = ...\nq.check(answer)",
        ),
        ("# solution\na, b = 1, 2\n# end solution\nprint(a, b)", "a = ...\nb = ...\nprint(a, b)"),
        (
            "# solution\na, (b, *c) = f()\n# end solution\nprint(c, a)",
            "a = ...\nc = ...\nprint(c, a)",
        ),
        ('# solution\nanswer = query("""\nSELECT 1\n""")\n', "answer = ..."),
        ("def f(x):\n    # solution\n    return x + 1", "def f(x):\n    return ..."),
        (
            "def f(x):\n    # solution\n    y = x\n    return y\n    # end solution",
            "def f(x):\n    y = ...",
        ),
        ("# solution\nprint(1)", "..."),
        (
            "# solution\ndef f(x):\n    inner = x\n    return inner\n# end solution\nq.check(f)",
            "f = ...\nq.check(f)",
        ),
        ("# solution\nwith open(p) as file:\n    answer = file.read()", "answer = ..."),
        ("# solution\nrows = [row for row in table]\nanswer = len(rows)", "answer = ..."),
        (
            (
                "# solution\na = 1\n# end solution\nprint(a)\n# solution\nb = 2\n# end"
                " solution\nprint(b)"
            ),
            "a = ...\nprint(a)\nb = ...\nprint(b)",
        ),
        ("%%bash\n# solution\nls -l\n# end solution\necho", "%%bash\n# your turn\necho"),
        ("x = 1", "x = 1"),
    ],
)
def test_solution_is_replaced_by_its_names(source: str, expected: str) -> None:
    (found,) = learner_sources([source])
    assert found.rstrip("\n") == expected


def test_names_used_in_later_cells_are_kept() -> None:
    first = "# solution\nshare = 0.5\nhelper = 2\nanswer = share * helper"
    assert (
        learner_sources([first, "q.check(answer)", "print(f'{share}')"])[0]
        == "share = ...\nanswer = ..."
    )
    # A name that only another solution uses is not kept: that solution is cut, too.
    assert learner_sources(
        [first, "# solution\nlater = helper\n# end solution\nq.check(answer, later)"]
    ) == [
        "answer = ...",
        "later = ...\nq.check(answer, later)",
    ]


@given(
    value=st.integers(),
    lines=st.lists(st.sampled_from(["helper = 3", "print(helper)", ""]), max_size=4),
)
def test_learner_never_sees_the_value(value: int, lines: list[str]) -> None:
    secret = f"secret_{value}".replace("-", "minus")
    source = "\n".join(
        [
            "before = 1",
            "# solution",
            *lines,
            f"answer = '{secret}'",
            "# end solution",
            "check(answer)",
        ]
    )
    (found,) = learner_sources([source])
    assert secret not in found
    assert found.startswith("before = 1\n")
    assert found.endswith("answer = ...\ncheck(answer)")
    compile(found, "cell", "exec")


def test_learner_and_combined_notebook(course: Folders) -> None:
    texts = build(course)
    learner = cells(texts[course.notebooks / "00_clock.ipynb"])
    combined = cells(texts[course.combined / "00_clock.ipynb"])
    assert ("code", 'q = exercise("00.1", 3)\nanswer = ...\nq.check(answer)') in learner
    solved = (
        "code",
        'q = exercise("00.1", 3)\ntotal = sum(range(4))\nanswer = total / 2\nq.check(answer)',
    )
    # As shipped, then as solved, and at the end the proof; a cell without a solution stands there
    # once.
    assert combined[combined.index(solved) - 1] == (
        "code",
        'q = exercise("00.1", 3)\nanswer = ...\nq.check(answer)',
    )
    assert combined[-2][1].endswith('all_proven("00")')
    assert combined.count(("markdown", "A fact.")) == 1
    assert ("code", "%%bash\n# your turn\necho done") in learner
    assert ("code", "%%bash\npython -m cifar_train --max-steps 3\necho done") in combined
    assert not any(
        "solved notebook only" in text or "answer is three" in text for _, text in learner
    )
    assert (
        sum("solved notebook only" in text or "answer is three" in text for _, text in combined)
        == 2
    )


def test_notebooks_are_minimal_and_valid(course: Folders) -> None:
    for text in build(course).values():
        notebook = json.loads(text)
        assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
        assert text.endswith("}\n")
        for cell in notebook["cells"]:
            assert set(cell["metadata"]) <= {"tags"}
            if cell["cell_type"] == "code":
                assert (cell["outputs"], cell["execution_count"]) == ([], None)
        nbformat.validate(nbformat.reads(text, as_version=4))


def test_cell_ids_are_unique_and_survive_an_insertion(course: Folders) -> None:
    def ids() -> list[str]:
        text = build(course)[course.notebooks / "02_step.ipynb"]
        return [cell.id for cell in nbformat.reads(text, as_version=4).cells]

    before = ids()
    assert len(set(before)) == len(before)
    assert ids() == before
    write_lesson(
        course.lessons / "02_step", SECOND.replace("# %%\n1 + 1", "# %%\nnew\n\n# %%\n1 + 1", 1)
    )
    after = ids()
    assert [id for id in after if id in before] == before
    assert len(after) == len(before) + 1


def test_readme_lists_the_lessons_as_they_say_themselves(course: Folders) -> None:
    with (course.lessons / "00_clock/lesson.toml").open("a") as file:
        file.write('view = "a clock"\n')
    readme = Path("README.md")
    readme.write_text(
        "# Course\n\n## Lessons\n\n- 00 [Old?](notebooks/00_old.ipynb) (1)\n\n## More\n"
    )
    write(course, combined_only=True)
    assert next(text.partition(":")[0] for text in stale(course)) == "README.md"
    assert readme in write(course)
    assert stale(course) == []
    lines = readme.read_text().splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        "- 00 [Why?](notebooks/00_clock.ipynb) (5)",
        "- 02 [Why?](notebooks/02_step.ipynb) (5)",
    ]
    assert lines[-1] == "## More"


def test_check_names_what_is_stale(course: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--check"]) == 1
    assert "notebooks/00_clock.ipynb: missing" in capsys.readouterr().out
    assert not course.notebooks.exists()
    assert {path.name for path in course.combined.iterdir()} == {"00_clock.ipynb", "02_step.ipynb"}
    assert main(["build"]) == 0
    assert main(["build", "--check"]) == 0
    path = course.notebooks / "00_clock.ipynb"
    path.write_text(path.read_text().replace("echo done", "echo edited"))
    (course.notebooks / "07_old.ipynb").write_text("{}")
    capsys.readouterr()
    assert main(["build", "--check"]) == 1
    out = capsys.readouterr().out
    assert '-    "echo edited"' in out
    assert '+    "echo done"' in out
    assert "notebooks/07_old.ipynb: " in out
    assert stale(course)[0].startswith("notebooks/00_clock.ipynb: differs")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("2_step", SECOND, "NN_name"),
        ("02_step", "# %%\n1\n", "H1"),
        (
            "02_step",
            "# ---\n# jupyter:\n#   kernelspec:\n#     name: x\n# ---\n\n" + SECOND,
            "can't be read",
        ),
        (
            "02_step",
            SECOND + "\n# %% [markdown]\n# {drawing 02_lunch}\n",
            "02_lunch",
        ),
        (
            "02_step",
            SECOND + "\n# %%\n# solution\n!ls\n",
            "02_step/lesson.py: the solution that starts with '!ls'",
        ),
    ],
)
def test_unusable_lesson_is_one_line(
    course: Folders, name: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lesson(course.lessons / name, text)
    assert main(["build"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("effort", ["7 minutes, open", "7 minutes, on runs that nobody has seen"])
def test_a_question_is_a_cell_of_text_above_its_exercise(course: Folders, effort: str) -> None:
    asked = f"""# %%
runs = load()


# {effort}: write `def answer(watt)`. It gets watts,
# and returns a `bool`.
q = exercise("02.1", runs)
# solution
answer = round
# end solution
"""
    write_lesson(course.lessons / "02_step", f"{SECOND}\n{asked}")
    write(course)
    text, code = nbformat.read(course.notebooks / "02_step.ipynb", 4).cells[-3:-1]
    assert (
        text.source
        == f"### Exercise 02.1 ({effort})\n\n{QUESTION_BOX}\n\nWrite `def answer(watt)`. It gets"
        " watts,\nand returns a `bool`.\n\n</blockquote>"
    )
    assert code.source == 'runs = load()\n\nq = exercise("02.1", runs)\nanswer = ...'


def test_a_drawing_is_an_image_with_its_title(course: Folders) -> None:
    write_lesson(course.lessons / "02_step", SECOND + "\n# %% [markdown]\n# {drawing lanes}\n")
    Path("docs/drawings").mkdir(parents=True)
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><title>Two lanes.</title></svg>'
    Path("docs/drawings/lanes.svg").write_text(svg)
    texts = build(course)
    for folder, home in ((course.notebooks, "../"), (course.combined, "../../")):
        image = f"![Two lanes.]({home}docs/drawings/lanes.svg)"
        assert ("markdown", image) in cells(texts[folder / "02_step.ipynb"])
