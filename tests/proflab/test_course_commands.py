"""Commands of the course are those that their tools accept, in the releases that it names."""

from __future__ import annotations

import re

import pytest
from nbformat import v4

from proflab.releases import number, shown
from tests.conftest import REPOSITORY
from tools.course_commands import (
    SCRIPTS,
    commands_in,
    problem,
    problems_in_cell,
    problems_in_files,
    problems_in_text,
)
from tools.notebooks import Folders, solved_notebooks

TRAIN = "python -m cifar_train"
NEWER = ("rocpd", "--profile-mpi-ranks", "--version", "-b", "--attach", "--hip-graph-trace")
"""Parts of commands that the text introduces with the release that they need."""

WRONG = [
    f"rocprofv3 --kernel-tracing -- {TRAIN}",
    f"rocprofv3 --kernel-trace --output-format parquet -- {TRAIN}",
    "rocprofv3 --kernel-trace --output-format csv",
    f"rocprofv3 --kernel-trace -- {TRAIN} --max-step 3",
    f"srun -n 2 rocprofv3 --kernal-trace -- {TRAIN}",
    "amd-smi monitor --powers",
    "rocpd converts -i a.db",
    f"rocprof-sys-run --traces -- {TRAIN}",
    "omnistat-query --export out",
    "python -m tidyprof summery a.json",
    "x=(rocprofv3 --stats\n --)",
]
RIGHT = [
    "rocprofv3 --version",
    f"sudo rocprofv3 --kernel-trace -- {TRAIN} --max-steps $STEPS > out.txt",
    f'srun -n4 --label rocprofv3 --sys-trace -f csv json -- {TRAIN} "$@"',
    "amd-smi monitor -g 0 -w 1 -W $WATCH --csv --file smi.csv &  # rocprofv3 --wrong",
    'tool=(rocprofv3 --kernel-trace\n    --output-directory "$results" --)',
    "need rocprofv3 rocpd",
]


@pytest.mark.parametrize("command", WRONG)
def test_wrong_commands_are_found(command: str) -> None:
    assert list(problems_in_cell(v4.new_code_cell(f"%%bash\ntrue\n{command}")))
    assert list(problems_in_text(command))


@pytest.mark.parametrize("command", RIGHT)
def test_right_commands_have_no_problem(command: str) -> None:
    assert list(problems_in_cell(v4.new_code_cell(f"%%bash\n{command}"))) == []


def test_prose_may_shorten_a_command_but_not_invent_an_option() -> None:
    page = "Say `rocprofv3 --stats ...`, not `rocprofv3 --statistics`.\n\n```bash\nrocpd query\n```"
    first, second = problems_in_cell(v4.new_markdown_cell(page))
    assert "rocpd" in first
    assert "--statistics" in second


def test_pages_job_scripts_and_snippets_hold_no_wrong_command() -> None:
    assert list(problems_in_files(REPOSITORY)) == []


@pytest.mark.parametrize("release", shown())
def test_each_release_accepts_the_commands_of_lessons_and_scripts(release, monkeypatch) -> None:
    monkeypatch.setenv("PROFLAB_ROCM", release)
    notebooks = solved_notebooks(Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks"))
    texts = [
        cell.source
        for notebook in notebooks.values()
        for cell in notebook.cells
        if cell.source.startswith("%%bash")
    ]
    for path in (path for pattern in SCRIPTS for path in REPOSITORY.glob(pattern)):
        oldest = re.search(r"^# .*ROCm (\d+\.\d+) and later", path.read_text(), re.MULTILINE)
        if not oldest or number(release) >= number(oldest[1]):
            texts.append(path.read_text())
    found = [words for text in texts for words in commands_in(text)]
    assert len(found) > 20
    refused = [words for words in found if problem(words)]
    assert [words for words in refused if not set(words) & {*NEWER}] == []
