"""Stand-ins of every release: which commands of the course each one takes, and what it does without
being told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab.releases import shown
from proflab.standins.tools import MODULE_OF_TOOL, build_parser
from tests.conftest import REPOSITORY, others_later
from tests.proflab import played_runs
from tests.proflab.played_runs import run
from tidyprof.diagnosis.causes import CAUSES
from tidyprof.diagnosis.verdict import COMMANDS
from tidyprof_tests.triage.test_causes import CASES
from tools.course_commands import Use, of_shell, uses_in_cell, uses_in_files
from tools.course_commands.reading import read_command
from tools.notebooks import Folders, solved_notebooks

RELEASES = shown()
TRAINER = "-- python3 -m cifar_train --max-steps 3"

NUMBERS = {"argument -b/--block: invalid choice"}
NOT_YET = {
    "6.4": {
        "invalid choice: 'rocpd'",
        "--profile-mpi-ranks",
        "--attach",
        "--att",
        "--version",
        "--replay-mode",
    }
    | NUMBERS
    | {"--hip-graph-trace"},
    "7.0": {"--profile-mpi-ranks", "--attach", "--replay-mode", "--hip-graph-trace"},
    "7.1": {"--profile-mpi-ranks", "--replay-mode", "--hip-graph-trace"},
    "7.2": {"--replay-mode", "--hip-graph-trace"},
    "7.14": {"--replay-mode", "--hip-graph-trace"},
    "10.0": {"--replay-mode"},
}
"""What a release does not have yet, and the text beside the command says so."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return played_runs.stage(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def notebooks() -> dict:
    return solved_notebooks(Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks"))


def uses(notebooks: dict) -> Iterator[Use]:
    for path, notebook in notebooks.items():
        for cell in notebook.cells:
            yield from uses_in_cell(cell, path)
    yield from uses_in_files(REPOSITORY)


def test_every_tool_that_a_lesson_runs_is_found(notebooks) -> None:
    everywhere = set()
    for path, notebook in notebooks.items():
        shell = "\n".join(
            cell.source for cell in notebook.cells if cell.source.startswith("%%bash")
        )
        named = {tool for tool in MODULE_OF_TOOL if re.search(rf"^ *{tool} ", shell, re.MULTILINE)}
        found = {
            tool
            for cell in notebook.cells
            for use in uses_in_cell(cell, path)
            for tool in use.tools
        }
        assert named <= found, path
        everywhere |= found
    assert {"cifar_train", "torchrun", "rocprofv3"} <= everywhere


@pytest.mark.parametrize("release", others_later(RELEASES, (RELEASES[0], RELEASES[-1])))
def test_every_command_of_the_course_is_taken_by_every_release(notebooks, release, monkeypatch):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    refused = [(str(use), problem) for use in uses(notebooks) for problem in use.problems]
    expected = NOT_YET.get(release, set())
    assert [use for use, problem in refused if not any(word in problem for word in expected)] == []
    for word in expected:
        assert any(word in problem for _, problem in refused), f"{word}: nothing shows it any more"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("tool", MODULE_OF_TOOL)
def test_every_tool_has_a_parser_in_every_release(tool, release, monkeypatch):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    assert f"of ROCm {release}" in build_parser(tool).format_help()


@pytest.mark.parametrize(("release", "suffix"), [("6.4", ".csv"), ("7.2", ".db"), ("10.1", ".db")])
def test_rocprofv3_writes_its_releases_format_without_being_told(
    here, release, suffix, monkeypatch
):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    assert run(f"rocprofv3 --kernel-trace -d out -o gpu {TRAINER}") == 0
    written = {path.suffix for path in Path("out").iterdir() if "modelled" not in path.name}
    assert written == {suffix}


@pytest.mark.parametrize(
    ("release", "options", "writes", "says"),
    [
        ("6.4", "", True, False),
        ("7.0", "", False, False),
        ("10.1", "-f rocpd", False, False),
        ("10.2", "", False, True),
        ("10.2", "-f rocpd csv", True, False),
    ],
)
def test_statistics_are_files_where_csv_is_written(
    here, release, options, writes, says, monkeypatch, capsys
):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    assert run(f"rocprofv3 --kernel-trace --stats {options} -d out -o gpu {TRAINER}") == 0
    assert (
        "--stats has no effect for the requested output format(s) rocpd" in capsys.readouterr().err
    ) == says
    assert Path("out/gpu_kernel_stats.csv").exists() == writes


@pytest.mark.parametrize(
    ("release", "counted"),
    [
        ("7.2", {"x": {"SQ_INSTS_VALU"}}),
        ("7.13", {"pass_1/x": {"SQ_WAVES"}, "pass_2/x": {"SQ_INSTS_VALU"}}),
        ("10.1", {"pass_1/x": {"SQ_WAVES"}, "pass_2/x": {"SQ_INSTS_VALU"}}),
    ],
)
def test_each_list_of_counters_is_a_run_of_its_own_since_7_13(
    here, release, counted, monkeypatch, capsys
):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    assert run(f"rocprofv3 --pmc SQ_WAVES --pmc SQ_INSTS_VALU -f csv -d out -o x {TRAINER}") == 0
    assert capsys.readouterr().err.count("nothing was measured") == len(counted)
    written = {
        str(path.relative_to("out")): path for path in Path("out").rglob("*_counter_collection.csv")
    }
    names = {
        name.removesuffix("_counter_collection.csv"): _counters(path)
        for name, path in written.items()
    }
    assert names == counted
    assert run(f"rocprofv3 --pmc SQ_WAVES -f csv -d one -o x {TRAINER}") == 0
    assert Path("one/x_counter_collection.csv").is_file()
    code = run(f"rocprofv3 --pmc --pmc SQ_WAVES -f csv -d one -o x {TRAINER}")
    assert (code, "Empty counter group" in capsys.readouterr().err) == (
        (0, False) if release == "7.2" else (1, True)
    )


def _counters(path: Path) -> set[str]:
    return set(pd.read_csv(path)["Counter_Name"])


def test_rocprof_sys_writes_a_trace_by_itself_before_10_1_only(here, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_ROCM", "10.0")
    assert run(f"rocprof-sys-run -o old {TRAINER}") == 0
    assert list(Path("old").rglob("*.proto"))
    monkeypatch.setenv("PROFLAB_ROCM", "10.1")
    assert run(f"rocprof-sys-run -o new {TRAINER}") == 2
    assert (
        "rocpd.db, what this release writes by default, is not modelled" in capsys.readouterr().err
    )
    assert run(f"rocprof-sys-run --trace -o new {TRAINER}") == 0
    assert list(Path("new").rglob("*.proto"))


@pytest.mark.parametrize(
    ("release", "known", "other"), [("6.4", "ROCM", "AMD"), ("7.0", "AMD", "ROCM")]
)
def test_rocprof_sys_takes_the_names_of_its_release_in_a_file(
    here, release, known, other, monkeypatch, capsys
):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    assert run("rocprof-sys-avail -bd -r SMI_METRICS") == 0
    assert capsys.readouterr().out.startswith(f"ROCPROFSYS_{known}_SMI_METRICS ")
    assert run("rocprof-sys-avail -G default.cfg") == 0
    assert f"ROCPROFSYS_{known}_SMI_METRICS " in Path("default.cfg").read_text()
    assert run(f"rocprof-sys-run -c default.cfg -o sensors {TRAINER}") == 0
    for switch in (known, other):
        Path("own.cfg").write_text(
            f"ROCPROFSYS_TRACE = true\nROCPROFSYS_USE_{switch}_SMI = false\n"
        )
        assert run(f"rocprof-sys-run -c own.cfg -o {switch} {TRAINER}") == (
            1 if switch == other else 0
        )
    assert f"unknown setting ROCPROFSYS_USE_{other}_SMI in own.cfg" in capsys.readouterr().err
    assert _counter_rows("sensors") > 0
    assert _counter_rows(known) == 0


def _counter_rows(folder: str) -> int:
    return sum(len(tidyprof.read(path).counters) for path in Path(folder).rglob("*.proto"))


def test_amd_smi_does_not_wait_for_an_answer_that_nobody_gives(here, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_ROCM", "10.1")
    assert run("amd-smi monitor --csv --file log.csv") == 0
    before = Path("log.csv").read_text()
    assert run("amd-smi monitor --csv --file log.csv") == 1
    assert "cannot prompt to overwrite or append" in capsys.readouterr().err
    assert Path("log.csv").read_text() == before
    assert run("amd-smi monitor --csv --file log.csv --append") == 0
    assert len(Path("log.csv").read_text()) > len(before)


@pytest.mark.parametrize(("release", "code"), [("7.14", 0), ("10.0", 1), ("10.1", 1)])
def test_rocprof_compute_mixes_no_files_since_10_0(here, release, code, monkeypatch):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    command = f"rocprof-compute profile --name one --no-roof {TRAINER}"
    assert run(command) == 0
    (other,) = Path("workloads/one").iterdir()
    (other / "of_another_run.csv").write_text("")
    assert run(command) == code
    assert (other / "of_another_run.csv").exists()
    if code:
        assert run(command.replace(" -- ", " --overwrite -- ")) == 0
        assert not (other / "of_another_run.csv").exists()


@pytest.mark.parametrize(
    ("release", "profiled", "joined", "share"),
    [
        ("7.12", "pmc_perf.csv", "pmc_perf.csv", "Pct of Peak"),
        ("7.14", "results_pmc_perf_0.csv", "pmc_perf.csv", "Pct of Peak"),
        ("10.1", "results_pmc_perf_0.csv.gz", "pmc_perf.csv", "Percent of Peak"),
        ("10.2", "results_pmc_perf_0.csv.gz", "pmc_perf.csv.gz", "Percent of Peak"),
    ],
)
def test_rocprof_compute_joins_its_runs_where_its_release_does(
    here, release, profiled, joined, share, monkeypatch, capsys
):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    assert run(f"rocprof-compute profile --name one --no-roof {TRAINER}") == 0
    (folder,) = Path("workloads/one").iterdir()
    assert {path.name for path in folder.glob("*pmc_perf*")} & {profiled, joined} == {profiled}
    separate = tidyprof.read("workloads")
    assert run(f"rocprof-compute analyze -p {folder} -b 2") == 0
    out = capsys.readouterr().out
    assert share in out
    assert "2.1 System Speed-of-Light" in out
    assert (folder / joined).is_file()
    together = tidyprof.read(folder)
    assert (len(separate.events), len(separate.counters)) == (
        len(together.events),
        len(together.counters),
    )
    order = ["dispatch_id", "name"]
    for one in (separate, together):
        one.counters = one.counters.astype({"name": str}).sort_values(order, ignore_index=True)
    assert separate.counters[[*order, "value"]].equals(together.counters[[*order, "value"]])


@pytest.mark.parametrize(
    ("release", "block", "refusal"),
    [
        ("6.4", "2", "invalid choice: '2' (choose from SQ, SQC, TA,"),
        ("6.4", "SQ", ""),
        ("7.0", "SQ", ""),
        ("7.0", "WAVES", "Invalid hardware block or metric id: WAVES"),
        ("7.1", "SQ", "Invalid metric id: SQ"),
        ("7.1", "2.1", ""),
    ],
)
def test_blocks_were_names_before_they_were_numbers(release, block, refusal, monkeypatch, capsys):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    if not refusal:
        assert build_parser("rocprof-compute").parse_args(
            ["profile", "-n", "one", "-b", block]
        ).block == [block]
        return
    with pytest.raises(SystemExit):
        build_parser("rocprof-compute").parse_args(["profile", "-n", "one", "-b", block])
    assert refusal in capsys.readouterr().err


def test_dash_d_of_rocprof_compute_is_another_option_in_10_2(monkeypatch):
    for release, meaning in (("7.2", ([3], None)), ("10.2", (None, "3"))):
        monkeypatch.setenv("PROFLAB_ROCM", release)
        options = build_parser("rocprof-compute").parse_args(["profile", "-n", "one", "-d", "3"])
        assert (options.dispatch or None, options.output_directory) == meaning


def test_rpd_is_built_on_roctracer_for_rocm_6_alone(here, monkeypatch):
    import sqlite3

    for release, copies in (("6.4", "Copy%"), ("7.0", "MEMORY_COPY_%"), ("10.1", "MEMORY_COPY_%")):
        monkeypatch.setenv("PROFLAB_ROCM", release)
        assert run(f"runTracer.sh -o {release}.rpd {TRAINER.removeprefix('-- ')}") == 0
        connection = sqlite3.connect(f"{release}.rpd")
        (types,) = connection.execute(
            f"SELECT count(*) FROM op WHERE opType LIKE '{copies}'"
        ).fetchone()
        connection.close()
        assert types > 0


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_takes_the_commands_that_triage_gives(
    release: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PROFLAB_ROCM", release)
    signs = CASES["straggler"]
    advised = [
        text for cause in CAUSES if (text := cause.advice(signs)).split()[0] in MODULE_OF_TOOL
    ]
    assert len(advised) >= 2
    readings = [
        read_command(command) for text in (*COMMANDS, *advised) for command in of_shell(text)
    ]
    assert [
        problem for reading in readings for problem in reading.problems if "train.py" not in problem
    ] == []
    assert {reading.tools[0] for reading in readings} >= {
        "rocprofv3",
        "amd-smi",
        "rocprof-compute",
        "runTracer.sh",
    }
