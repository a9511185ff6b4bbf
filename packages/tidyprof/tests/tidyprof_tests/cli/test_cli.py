"""The command line as a user meets it: tables, files, pipes, a terminal of 80 columns, one-line
errors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from tidyprof.analyses.kernels import kernels
from tidyprof.cli import main as cli
from tidyprof.cli.commands import COMMANDS, TABLES
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof_tests.chrome_writer import (
    HEADER,
    TraceEvent,
    kernel,
    operator,
    small_step,
    write_trace,
)
from tidyprof_tests.conftest import REPOSITORY, require
from tidyprof_tests.patience import PATIENCE_S

HEAVY = ("pandas", "torch", "matplotlib", "numpy", "rich")
OF_TABLES = [f"table {name}" for name in TABLES]
OF_RECORDINGS = [*OF_TABLES, *sorted({*COMMANDS} - {"table", "hang", "isa"})]
"""Commands that read recordings; the others read dumps and assembly."""

LONG_NAME = "an_unknown_kernel_with_a_name_of_sixty_characters_in_all_now"


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess:
    """The command line in a process of its own, its output in a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "tidyprof", *map(str, arguments)],
        cwd=REPOSITORY,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.fixture
def call(capsys):
    """The command line in this process, which is quicker: its output, which is no terminal, if it
    succeeds.
    """

    def main(*arguments: object) -> str:
        code = cli.main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return shown.out

    return main


def code_of(*arguments: object) -> int:
    """The exit code of the command line in this process."""
    try:
        return cli.main([str(argument) for argument in arguments])
    except SystemExit as end:  # argparse ends by itself
        return end.code


@pytest.fixture
def trace(tmp_path) -> Path:
    return write_trace(
        tmp_path / "rank0.json", [*small_step(), kernel(LONG_NAME, 1_080_000, 10_000, 20)]
    )


class TestStart:
    @pytest.mark.parametrize(
        ("words", "shown"),
        [
            ("table kernels --help", "--csv"),
            ("--version", f"tidyprof {version(cli.DISTRIBUTION)}\n"),
        ],
    )
    def test_help_loads_nothing_heavy(self, words, shown):
        code = (
            "import sys\nfrom tidyprof.cli.main import main\ntry:\n"
            f"    main({words.split()})\nexcept SystemExit: pass\n"
            f"sys.stderr.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        assert shown in done.stdout


class TestSummary:
    def test_a_log_of_a_monitor_shows_what_it_sampled(self, call, tmp_path):
        path = tmp_path / "log.csv"
        path.write_text(
            "timestamp,gpu,power_w,gpu_use_percent\n1754585903,0,100,50\n1754585904,0,300,\n"
        )
        lines = [line.split() for line in call("summary", path).splitlines()]
        assert ["power", "W", "0", "2", "100", "200", "300"] in lines
        assert ["gpu_busy", "%", "0", "1", "50", "50", "50"] in lines

    def test_warnings_and_repairs_are_shown(self, call, tmp_path):
        events = [operator("aten::linear", 1000 + place, 5, place) for place in range(150)]
        lost = operator("aten::lost", 0, 5, 150)
        started = TraceEvent("cuda_runtime", "hipLaunchKernel", 2000, 5, 1, 1, {"correlation": 1})
        text = call("summary", write_trace(tmp_path / "no_gpu.json", [*events, lost, started]))
        assert re.search(r"^warning +no_gpu\.json: .*GPU", text, re.MULTILINE)
        assert re.search(r"^repaired +dropped events at time zero: 1$", text, re.MULTILINE)


class TestTables:
    def test_kernels_of_a_recording(self, call, recordings, tmp_path):
        path = recordings / "torch-mi300x-resnet-ddp-rank0" / "resnet_act_checkpoint.json.gz"
        text = call("table", "kernels", path, "--csv", tmp_path / "out.csv")
        assert re.search(r"^ncclDevKernel_Generic +17 +71\.517 ", text, re.MULTILINE)
        expected = kernels(read_torch_trace(path))
        assert len(text.splitlines()) == len(expected) + 2, "heading, all kernels, origin"
        exported = pd.read_csv(tmp_path / "out.csv")
        assert exported["total_ns"].tolist() == expected["total_ns"].tolist()
        assert exported["name"].tolist() == expected["name"].tolist()
        assert (exported["origin"] == str(expected.attrs["origin"])).all()

    def test_compare(self, call, trace, tmp_path):
        faster = write_trace(tmp_path / "after.json", [kernel(LONG_NAME, 1_080_000, 4_000, 20)])
        text = call("table", "compare", trace, faster, "--json", tmp_path / "out.json")
        assert re.search(r" 1 +1 +0\.010 +0\.004 +-0\.006$", text, re.MULTILINE)
        rows = json.loads((tmp_path / "out.json").read_text())
        assert {row["short_name"]: row["difference_ns"] for row in rows}[
            "ncclDevKernel_Generic"
        ] == -30_000

    def test_recordings_of_other_numbers_of_steps_are_compared_by_the_step(self, call, tmp_path):
        """The long kernel of a step takes 10 µs before and 30 µs after; all others take almost no
        time.
        """

        def recorded(name: str, steps: int, long_ns: int) -> Path:
            events = []
            for step in range(steps):
                begin = 1_000_000 * (step + 1)
                events += [
                    TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 900_000, 1, 1, {}),
                    kernel("long_one", begin + 1_000, long_ns, 2 * step),
                    kernel("small_one", begin + 100_000, 1_000, 2 * step + 1),
                    kernel("tiny_one", begin + 200_000, 10 + 5 * steps, 2 * step + 50),
                ]
            return write_trace(tmp_path / name, events)

        paths = recorded("before.json", 4, 10_000), recorded("after.json", 2, 30_000)
        lines = call("table", "compare", *paths).splitlines()
        assert lines[1].split() == ["long_one", "1", "1", "0.010", "0.030", "0.020"]
        assert "sum per step: 0.011 ms before and 0.031 ms after (+181.2%)" in lines
        assert "steps: 4 before, 2 after" in lines

    @pytest.mark.parametrize("command", ["table kernels", "table busy", "table steps"])
    def test_exports_agree(self, call, command, trace, tmp_path):
        call(*command.split(), trace, *(f"--{kind}={tmp_path / kind}" for kind in ("csv", "json")))
        records = json.loads((tmp_path / "json").read_text())
        table = pd.read_csv(tmp_path / "csv", dtype=object)
        assert list(table.columns) == list(records[0])
        for row, record in zip(table.to_dict("records"), records, strict=True):
            for name, value in record.items():
                same = str(value) == row[name] or value == pytest.approx(float(row[name]))
                assert same or (value is None and pd.isna(row[name]))


class TestRecordingsAreKept:
    """No command writes over what it reads."""

    @pytest.fixture
    def refused(self, capsys):
        def main(*arguments: object, kept: Path) -> str:
            before = kept.read_bytes()
            assert cli.main([str(argument) for argument in arguments]) == 2
            assert kept.read_bytes() == before
            shown = capsys.readouterr()
            assert not shown.out, "said before any work is done"
            assert shown.err.count("\n") == 1
            return shown.err

        return main

    def test_the_file_itself(self, refused, trace):
        assert "replace an input file" in refused(
            "table", "kernels", trace, "--json", trace, kept=trace
        )
        assert "replace an input file" in refused(
            "table", "compare", trace, trace, "--csv", trace, kept=trace
        )

    def test_a_new_file_in_the_folder_may_be_written(self, call, trace):
        call("table", "busy", trace.parent, "--csv", trace.parent / "busy.csv")
        assert len(pd.read_csv(trace.parent / "busy.csv")) == 1


REFUSED = (
    *("", "tables x", "table", "table kernel x", "table kernels", "table kernels x --top many"),
    *("table kernels x --topp 3", "table compare one", "table kernels /nowhere/trace.json"),
    *("table steps TRACE --timeline device", "table busy TRACE --timeline device"),
    "summary TRACE --step-marker forward",
    *("convert TRACE out.pb", "convert TRACE /nowhere/out.json"),
    *(f"table busy TRACE --csv={name}" for name in ("/nowhere/out.csv", "/tmp", "", "-")),
)


@pytest.mark.parametrize("line", REFUSED)
def test_errors_are_one_line(line, tmp_path, capsys):
    step = TraceEvent("user_annotation", "ProfilerStep#1", 1000, 5000, arguments={"External id": 1})
    trace = write_trace(tmp_path / "trace.json", [step, kernel("gemm", 2000, 500, 1)])
    assert code_of(*(trace if word == "TRACE" else word for word in line.split())) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert not shown.out, "said before any work is done"


def test_an_option_whose_extra_is_missing(trace, monkeypatch, capsys):
    monkeypatch.setattr("tidyprof.cli.output.find_spec", lambda name: None)
    assert cli.main(["triage", str(trace), "--html", "out"]) == 2
    shown = capsys.readouterr()
    assert "tidyprof[plots]" in shown.err
    assert not shown.out, "said before any work is done"


@pytest.mark.parametrize("command", ["summary", "gate"])
def test_bugs_keep_their_traceback_and_close_no_gate(command, trace, monkeypatch, capsys):
    def fail(options):
        raise ZeroDivisionError

    monkeypatch.setitem(COMMANDS, command, fail)
    assert cli.main([command, str(trace), str(trace)]) == 3
    assert "Traceback" in (error := capsys.readouterr().err)
    assert error.endswith("ZeroDivisionError\n")


@pytest.mark.parametrize("module", ["tidyprof.cli.main", "tidyprof.cli.commands", "numpy"])
def test_a_module_that_cannot_be_imported_closes_no_gate(module, trace):
    code = (
        f"import runpy, sys; sys.modules[{module!r}] = None; runpy.run_module('tidyprof',"
        " run_name='__main__')"
    )
    arguments = [sys.executable, "-c", code, "gate", trace, trace]
    done = subprocess.run(
        arguments, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 3
    assert "Traceback" in done.stderr


class TestOutput:
    def test_a_pipe_is_plain_and_not_cut(self, call, trace, monkeypatch):
        monkeypatch.setenv("COLUMNS", "40")
        monkeypatch.setenv("TERM", "xterm-256color")
        for command in ("summary", "table kernels", "table busy", "table steps"):
            text = call(*command.split(), trace)
            assert "\x1b" not in text
            assert text.isascii() or set(re.sub(r"[ -~\n]", "", text)) <= {"µ"}, "no boxes"
            assert not re.search(r"[ \t]$", text, re.MULTILINE)
        text = call("table", "kernels", trace)
        for name in kernels(read_torch_trace(trace))["short_name"]:
            assert f"{name}  " in text

    @pytest.mark.parametrize("command", OF_TABLES)
    def test_files_are_written_although_the_pipe_is_closed(
        self, command, trace, tmp_path, monkeypatch, capsys
    ):
        others = [str(trace)] if command == "table compare" else []
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as closed:
            monkeypatch.setattr(sys, "stdout", closed)
            words = [*command.split(), str(trace), *others, "--csv", str(tmp_path / "out.csv")]
            assert cli.main(words) == 0
        assert capsys.readouterr().err == ""
        assert len(pd.read_csv(tmp_path / "out.csv"))

    def test_a_full_disk_is_one_line(self, trace):
        require(Path("/dev/full").exists(), "/dev/full")
        with open("/dev/full", "w") as full:
            arguments = [sys.executable, "-m", "tidyprof", "table", "kernels", trace]
            done = subprocess.run(
                arguments,
                cwd=REPOSITORY,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE_S,
            )
        assert done.returncode == 2
        assert done.stderr.startswith(
            "error: standard output: No space left on device. Likely cause: "
        )
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        ("command", "code"),
        [("gate missing new", 2), ("table busy TRACE", 0)],
    )
    @pytest.mark.parametrize("closed", ["2>/dev/full", "2>&-"])
    def test_the_exit_code_is_the_same_where_no_message_can_be_written(
        self, command, code, closed, trace
    ):
        require(Path("/dev/full").exists(), "/dev/full")
        line = f"{sys.executable} -m tidyprof {command.replace('TRACE', str(trace))} {closed}"
        done = subprocess.run(
            line, shell=True, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == code
        assert "error" not in done.stdout

    @pytest.mark.parametrize("command", sorted({*OF_RECORDINGS} - {"summary"}))
    def test_json_on_standard_output_and_nothing_else(
        self, command, trace, other, tmp_path, capsys
    ):
        files = [trace, other] if command in ("table compare", "gate") else [trace]
        words = [*command.split(), *map(str, files), "--json"]
        assert cli.main([*words, str(tmp_path / "out.json")]) == 0
        capsys.readouterr()
        assert cli.main([*words, "-"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(
            (tmp_path / "out.json").read_text()
        )
        assert not os.path.exists("-")

    @pytest.mark.parametrize(
        ("name", "cell"),
        [
            ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(1)", "'@SUM(1)"),
            ("＝1", "'＝1"),
            ("\t=1", "�=1"),
            ("a\rb", "a�b"),
            ("a\nb", "a�b"),
            ("\x1b[2Ja", "�[2Ja"),
            ("\u202ea", "�a"),
            ('void f<"a">(x, =1)', 'void f<"a">(x, =1)'),
        ],
    )
    def test_a_cell_of_csv_does_nothing_and_numbers_stay(self, name, cell, tmp_path, call):
        path = write_trace(
            tmp_path / "hostile.json", [*small_step(), kernel(name, 1_080_000, 10_000_000, 21)]
        )
        call(
            "table",
            "kernels",
            path,
            "--csv",
            tmp_path / "kernels.csv",
            "--json",
            tmp_path / "kernels.json",
        )
        text = (tmp_path / "kernels.csv").read_text()
        assert all(letter.isprintable() for line in text.split("\n") for letter in line)
        table = pd.read_csv(tmp_path / "kernels.csv")
        assert table["name"].iloc[0] == cell
        exact = pd.read_json(tmp_path / "kernels.json")
        assert exact["name"].iloc[0] == name
        numbers = exact.select_dtypes("number").columns
        assert "total_ns" in numbers
        pd.testing.assert_frame_equal(table[numbers], exact[numbers], check_dtype=False)

    def test_control_characters_of_a_name_do_nothing(self, tmp_path):
        step = TraceEvent(
            "cpu_op", "\x1b]0;title\x07\x1b[2Jop", 1000, 500, arguments={"External id": 1}
        )
        path = write_trace(tmp_path / "hostile.json", [step], header={"schemaVersion": 1})
        text = run("summary", path).stdout
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "op" in text


# Files of a folder that are not read


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """Ranks 0 and 2 of a run, and the one between damaged at its start."""
    folder = tmp_path / "half"
    folder.mkdir()
    for rank in range(3):
        header = HEADER | {"distributedInfo": {}, "traceName": f"of rank {rank}"}
        path = write_trace(folder / f"rank{rank}.json", small_step(), header=header)
        if rank == 1:
            path.write_bytes(path.read_bytes()[30:])
    return folder


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A recording of another run."""
    step = TraceEvent(
        "user_annotation", "ProfilerStep#1", 1_000_000, 150_000, arguments={"External id": 1}
    )
    return write_trace(tmp_path / "other.json", [step, *small_step()[1:]])


@pytest.mark.parametrize("command", OF_RECORDINGS)
def test_every_command_names_what_was_not_read(command, half, other, tmp_path, capsys):
    second = {"table compare": [half], "gate": [other]}
    assert cli.main([*command.split(), *map(str, [half, *second.get(command, [])])]) == 0
    shown = capsys.readouterr()
    assert "rank1.json" in shown.out + shown.err
    assert ("rank1.json" in shown.out) is (command in ("summary", "gate"))
