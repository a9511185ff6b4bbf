"""Every command of the course is found, and is one that its tool would understand."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from nbformat import v4

from tests.conftest import REPOSITORY
from tools.course_commands import (
    Use,
    of_markdown,
    of_python,
    of_script,
    of_usage,
    uses_in_cell,
    uses_in_files,
)
from tools.course_commands.reading import read_command, tables
from tools.course_commands.shell import OPAQUE, Command, commands_in

COURSE = Path(__file__).resolve().parents[2]
HERE = Path("lesson")


def wrong(found: Iterator[Use]) -> list[str]:
    return [str(use) for use in found if use.problems]


def test_files_hold_no_wrong_command_and_their_commands_are_found() -> None:
    found = defaultdict(set)
    for use in uses_in_files(COURSE):
        assert not use.problems, str(use)
        found[use.path.relative_to(COURSE).as_posix()] |= set(use.tools)
    assert {"proflab", "make"} <= found["README.md"]
    assert {"cifar_train", "torchrun", "mpirun", "rocprofv3", "tidyprof", "proflab"} <= found[
        "docs/packages.md"
    ]
    assert {"sbatch", "squeue", "submit.sh"} <= found["docs/slurm.md"]
    for name, tools in {
        "rocprofv3_counters": {"rocprofv3"},
        "rocprof_sys_callstack": {"rocprof-sys-avail", "rocprof-sys-sample"},
        "rocprof_compute_profile": {"rocprof-compute"},
        "omnistat": {"omnistat-usermode", "omnistat-query"},
    }.items():
        assert found[f"scripts/slurm/{name}.sh"] >= tools | {"sbatch"}, name


TRAIN = "python -m cifar_train"

WRONG = {
    f"rocprofv3 --kernel-tracing -- {TRAIN}": "rocprofv3: error: unrecognized arguments",
    f"rocprofv3 --kernel-trace --output-format parquet -- {TRAIN}": "invalid choice: 'parquet'",
    f"rocprofv3 --kernel-trace --output-file -- {TRAIN}": "expected one argument",
    f"rocprofv3 --stats -- {TRAIN}": "Fatal error: No tracing options were enabled for --stats",
    "rocprofv3 --kernel-trace": "No application provided",
    f"rocprofv3 --kernel-trace -- {TRAIN} --max-step 3": (
        "cifar_train: unrecognized arguments: --max-step"
    ),
    f"{TRAIN} --record-shapes": "--record-shapes needs --torch-profile",
    f"{TRAIN} --pathology slow": "invalid choice: 'slow'",
    f"srun -n 2 rocprofv3 --kernal-trace -- {TRAIN}": "--kernal-trace",
    f"srun --task 2 {TRAIN}": "srun: error: unrecognized arguments: --task",
    "srun -n 2": "srun is given no program",
    "torchrun --nproc-per-node": "expected one argument",
    "torchrun -m cifar_trian": "python -m cifar_trian is no module",
    "torchrun --no-python rocprofv3 --kernel-trace": "No application provided",
    "mpirun -np 2 python -m cifar_train.matmul --x-shape 1": "expected 2 arguments",
    "amd-smi watch": "Command 'watch' is invalid",
    "amd-smi monitor --powers": "--powers",
    "rocpd converts -i a.db": "converts",
    "rocpd convert -i a.db": "required: -f",
    f"rocprof-compute profile -n a/b -- {TRAIN}": "'/' not permitted",
    f"rocprof-compute --profile -n a -- {TRAIN}": "rocprof-compute",
    f"rocprof-sys-run --traces -- {TRAIN}": "--traces",
    f"runTracer.sh -p a.rpd {TRAIN}": "-p stands where a program is due",
    "rpd2tracing": "required: input_rpd",
    "omnistat-query --export out": "required: --job",
    "python -m tidyprof summery a.json": "summery",
    "rocprof3 --kernel-trace": "rocprof3 is no tool that the course knows",
    "scontrol shows node n1": "invalid choice: 'shows'",
    "squeue node1": "unrecognized arguments: node1",
    "ls | rocm-smi --show": "--show",
    "echo $(rocminfo --all)": "--all",
    "export ROCM_DEBUG_AGENT_OPTIONS='--every --output=a.txt'": (
        "rocm-debug-agent: error: unrecognized arguments"
    ),
    "python -x -m cifar_train": "python has no option -x",
    f"bash -c 'exec \"$@\"' _ {TRAIN} --wrong": "--wrong",
}


@pytest.mark.parametrize(("command", "expected"), WRONG.items())
def test_wrong_commands_are_found_with_their_text(command: str, expected: str) -> None:
    (use,) = [
        use
        for use in uses_in_cell(v4.new_code_cell(f"%%bash\ntrue\n{command}"), HERE)
        if use.problems
    ]
    assert expected in use.problems[0]
    assert str(use).startswith(f"lesson, line 1: {use.problems[0]}: ")


RIGHT = (
    "rocprofv3 --version",
    f"rocprofv3 --stats -- {TRAIN} 2>&1 | grep Fatal",
    f"{TRAIN} --record-shapes || true",
    f"sudo rocprofv3 --kernel-trace -- {TRAIN} --max-steps $STEPS > out.txt",
    f'srun -n4 --label rocprofv3 --sys-trace -f csv json -- {TRAIN} "$@"',
    f"rocprof-sys-run {TRAIN}",
    "amd-smi topology --json",
    "amd-smi monitor -g 0 -w 1 -W $WATCH --csv --file smi.csv &",
    "python3 tools/rpd2tracing.py a.rpd a.json",
)


@pytest.mark.parametrize("command", RIGHT)
def test_right_commands_have_no_problem(command: str) -> None:
    found = list(uses_in_cell(v4.new_code_cell(f"%%bash\n{command}"), HERE))
    assert wrong(found) == []
    assert any(use.tools for use in found)


def test_a_refusal_is_forgiven_its_rules_and_not_its_options() -> None:
    for end in ("|| true", "| grep Fatal"):
        cell = v4.new_code_cell(f"%%bash\nrocprofv3 --statistics -- {TRAIN} {end}")
        assert "--statistics" in wrong(uses_in_cell(cell, HERE))[0]


SHELL = {
    "a --x \\\n  1": [["a", "--x", "1"]],
    "a 'b c' \"d\ne\" f\\ g": [["a", "b c", "d\ne", "f g"]],
    "A=1 B='2 3' a && b; c || true | d &": [["a"], ["b"], ["c"], ["true"], ["d"]],
    "a -w 1 > out 2>&1 < in # b": [["a", "-w", "1"]],
    "a <<END | d\nb --x\nEND\nc": [["a"], ["d"], ["c"]],
    'x=(p -q)\na "${x[@]}" ${#x} $y': [["a", OPAQUE, OPAQUE, OPAQUE]],
    "for i in 1 2\ndo a $i; done": [["a", OPAQUE]],
    "if a; then b; else c; fi": [["a"], ["b"], ["c"]],
    "f() { a; }\n[[ $x =~ ^(a|b)$ ]] && f": [["a"], ["f"]],
    "a $((1 + 2)) `b` <(d -e)": [["a", OPAQUE, OPAQUE, OPAQUE], ["b"], ["d", "-e"]],
    "(a; b) | c": [["a"], ["b"], ["c"]],
}


@pytest.mark.parametrize(("text", "expected"), SHELL.items())
def test_commands_in_a_shell_text(text: str, expected: list[list[str]]) -> None:
    assert [list(command.words) for command in commands_in(text) if command.whole] == expected


@pytest.mark.parametrize("text", ["a 'b", 'a "b\nc'])
def test_an_open_quote_is_a_finding(text: str) -> None:
    found = wrong(uses_in_cell(v4.new_code_cell(f"%%bash\n{text}"), HERE))
    assert "a shell can't read this: a quote is never closed" in found[-1]


def words(commands: Iterator[tuple[int, Command]]) -> list[list[str]]:
    return [list(command.words) for _, command in commands]


def test_commands_in_prose_tables_and_blocks() -> None:
    page = (
        "Say `amd-smi list -e`, not `amd-smi`, nor `import torch`.\n\n"
        "| a | b |\n| --- | --- |\n| x | `srun -n 4 rocprofv3 ... -- python ...` |\n\n"
        "```bash\nmkdir a\nrocminfo\n```\n\n```\nA=1 rocpd summary -i <file>  # words\n```\n\n"
        "```\nno command here\n```\n\n```python\nrocminfo = 1\n```\n\n"
        "```usage\nrocm-smi FILE... [--json] [--showpids a|b]   what it does\n```\n"
    )
    assert words(of_markdown(page)) == [
        ["amd-smi", "list", "-e"],
        ["srun", "-n", "4", "rocprofv3", "--", "python"],
        ["mkdir", "a"],
        ["rocminfo"],
        ["rocpd", "summary", "-i", OPAQUE],
        ["rocm-smi", "FILE", "--json", "--showpids", "a"],
    ]


def test_commands_in_python_cells_and_texts_of_exercises() -> None:
    source = (
        "!rocminfo {folder}\n%matplotlib inline\n# translate `rocprof --stats a`\n"
        'run("rocm-smi --json")\nsay("rocprofv3 tells you; see `rocpd query --script`")\n'
        'solution = """\n# rocprof-sys-run -T \\\\\n#     -- a\n"""\n'
    )
    assert sorted(words(of_python(source))) == sorted(
        [
            ["rocminfo", OPAQUE],
            ["rocprof", "--stats", "a"],
            ["rocm-smi", "--json"],
            ["rocpd", "query", "--script"],
            ["rocprof-sys-run", "-T", "--", "a"],
        ]
    )


@pytest.mark.parametrize(
    "text",
    [
        "rocprof-sys-avail -G",
        "rocpd convert",
        "srun rocprofv3 … -- python …",
        "rocpd query -i DB --query SQL",
        "rocprofv3 -p PID",
    ],
)
def test_prose_may_leave_out_what_a_command_needs(text: str) -> None:
    assert [read_command(command).problems for command in of_usage(text)] == [[]]


def test_commands_of_a_job_script() -> None:
    text = (
        "#   sbatch job.sh    (what it does)\n#SBATCH --ntasks=2\nneed rocprofv3\n"
        'step rocprofv3 -r -- "${TRAIN[@]}" --max-steps 2\n'
    )
    assert words(of_script(text)) == [
        ["sbatch", "job.sh"],
        ["sbatch", "--ntasks=2"],
        ["step", "rocprofv3", "-r", "--", OPAQUE, "--max-steps", "2"],
    ]


def test_scripts_of_the_course_have_to_exist() -> None:
    for text in (
        "sbatch scripts/slurm/none.sh",
        "scripts/slurm/none.sh",
        "python scripts/dev/none.py",
    ):
        assert read_command(Command(tuple(text.split())), COURSE).problems == [
            f"there is no {text.split()[-1]}"
        ]
    assert read_command(Command(("sbatch", "scripts/slurm/rpd.sh")), COURSE).problems == []


def test_targets_of_make_are_those_of_the_makefile() -> None:
    text = (COURSE / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    patterns = tuple(re.findall(r"^([a-z-]+-)%:", text, re.MULTILINE))
    known = tables()["tool"]["make"]["commands"].split()
    assert {word for word in known if not word.startswith(patterns)} == set(phony)


def test_statistics_are_asked_for_in_a_format_that_has_them() -> None:
    """From ROCm 7.0 to 10.1 `--stats` writes nothing beside the default format, a database, and
    does not say so.
    """
    pages = [
        *REPOSITORY.glob("docs/*.md"),
        *REPOSITORY.glob("lessons/*/lesson.py"),
        *REPOSITORY.glob("snippets/*.sh"),
    ]
    joined = [line for page in pages for line in page.read_text().replace("\\\n", " ").splitlines()]
    asked = [
        line
        for line in joined
        if re.search(r"--kernel-trace [^|`]*--stats|--stats [^|`]*--kernel-t", line)
    ]
    assert len(asked) > 3
    assert [line for line in asked if "csv" not in line] == []


def parsers_of(module: str) -> list[argparse.ArgumentParser]:
    """The parsers of a program's commands, of one without commands its own."""
    parser = import_module(module).build_parser()
    commands = [
        action.choices for action in parser._actions if action.dest in ("command", "==SUPPRESS==")
    ]
    return [one for choices in commands if choices for one in choices.values()] or [parser]


@pytest.mark.parametrize("module", ["tidyprof.cli.main", "proflab.__main__", "cifar_train.config"])
def test_the_help_of_each_command_ends_with_examples_that_it_understands(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in parsers_of(module):
        text = parser.format_help()
        _, _, examples = text.partition("\nexamples:\n")
        found = [command for line in examples.splitlines() for command in commands_in(line)]
        assert 1 <= len(found) <= 3, parser.prog
        for command in found:
            assert " ".join(command.words).startswith(parser.prog)
            assert read_command(command).problems == []
        assert max(map(len, text.splitlines())) <= 80
