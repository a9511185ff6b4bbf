"""The command line as a user meets it: tables, files, pipes, a terminal of 80 columns, one-line
errors.
"""

from __future__ import annotations

import contextlib
import fcntl
import html
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from tidyprof.analyses.budget import step_budget
from tidyprof.analyses.busy import busy
from tidyprof.analyses.kernels import kernels
from tidyprof.cli import main as cli
from tidyprof.cli.commands import COMMANDS, show_steps
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof_tests.analyses.test_analyses import phased, two_processes
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
from tidyprof_tests.rocprofv3_writer import Call, Kernel, call_csv, write_results

MODELLED = REPOSITORY / "recordings/modelled-resnet"

HEAVY = ("pandas", "torch", "matplotlib", "numpy", "rich")
LONG_NAME = "an_unknown_kernel_with_a_name_of_sixty_characters_in_all_now"
assert len(LONG_NAME) == 60, "longer names are shortened"


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


def in_terminal(*arguments: object, columns: int = 80) -> list[str]:
    """The lines that a terminal of this width would show, colours removed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tidyprof", *map(str, arguments)],
        cwd=REPOSITORY,
        env=environment | {"TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    collected = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        collected += piece
    os.close(master)
    assert process.wait() == 0, collected
    return lines_of(collected.decode())


def lines_of(shown: str) -> list[str]:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    # A carriage return goes back to the start of the line, as a progress bar does that is then
    # overwritten.
    return [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]


def code_of(*arguments: object) -> int:
    """The exit code of the command line in this process."""
    try:
        return cli.main([str(argument) for argument in arguments])
    except SystemExit as end:  # argparse ends by itself
        return end.code


class Screen(io.TextIOWrapper):
    """What is written to it counts as shown on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_screen():
    """As in_terminal, in this process, which is quicker."""

    def lines(*arguments: object, columns: int = 80, code: int = 0) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", Screen(io.BytesIO(), "utf-8"))
            patch.setattr(sys, "stderr", sys.stdout)
            patch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, 50)))
            patch.setenv("TERM", "xterm-256color")
            for name in ("COLUMNS", "LINES", "NO_COLOR"):
                patch.delenv(name, raising=False)
            assert code_of(*arguments) == code
            sys.stdout.flush()
            return lines_of(sys.stdout.buffer.getvalue().decode())

    return lines


@pytest.fixture
def trace(tmp_path) -> Path:
    return write_trace(
        tmp_path / "rank0.json", [*small_step(), kernel(LONG_NAME, 1_080_000, 10_000, 20)]
    )


@pytest.fixture(scope="module")
def four_ranks(recordings) -> Path:
    return recordings / "torch-mi300-ddp-4ranks-fused" / "merged_all_events.json.gz"


class TestStart:
    def test_help_loads_nothing_heavy(self):
        code = (
            "import sys\nfrom tidyprof.cli.main import main\ntry:\n    main(['kernels',"
            f" '--help'])\nexcept SystemExit: pass\nsys.stderr.write(' '.join(m for m in {HEAVY!r}"
            " if m in sys.modules))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        assert "--parquet" in done.stdout

    def test_help_names_every_command_and_fits(self):
        done = run("--help", COLUMNS="80")
        assert done.returncode == 0
        for command in COMMANDS:
            assert re.search(rf"^    {command}\b", done.stdout, re.MULTILINE)
            assert run(command, "--help", COLUMNS="80").returncode == 0
        assert max(map(len, done.stdout.splitlines())) <= 80


class TestSummary:
    def test_facts(self, call, trace):
        lines = call("summary", trace).splitlines()
        facts = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:10]}
        assert lines[0] == str(trace)
        assert facts["tool"] == "torch.profiler roctracer 4.1"
        assert facts["GPU"] == "AMD Instinct MI300X"
        assert facts["versions"] == "ROCm 6.4, HIP 6.4.43483"
        length = "100.0 µs (on the host, as recorded)"
        assert facts["steps"] == f"step 1, {length}, marked by the profiler, ProfilerStep#N"
        assert facts["origin"] == "recorded: AMD Instinct MI300X, ROCm 6.4"
        # 1030500-1070000 without a gap, then 1080000-1090000; durations 20001 + 3000 + 1000 + 30000
        # + 10000.
        assert facts["span"] == "100.0 µs from the first to the last event of the recording"
        assert facts["busy"] == (
            "rank 0, device 2: 83.2 %, 49.5 µs of the 59.5 µs from its first to its last event"
            " (durations add up to 64.0 µs)"
        )

    def test_a_recording_of_a_cpu_shows_operators(self, call, tmp_path):
        header = {"schemaVersion": 1, "deviceProperties": []}
        path = write_trace(
            tmp_path / "cpu.json", [operator("aten::linear", 1000, 2000, 1)], header=header
        )
        text = call("summary", path)
        assert re.search(r"^busy +there is no event on a device$", text, re.MULTILINE)
        assert re.search(r"^operator +calls", text, re.MULTILINE)
        assert "aten::linear" in text

    def test_the_straggler_is_named(self, call, four_ranks):
        text = call("summary", four_ranks)
        assert "Rank 3 came last in 21 of 21 collectives" in text
        assert len(re.findall(r"^busy +rank \d", text, re.MULTILINE)) == 4

    def test_a_log_of_a_monitor_shows_what_it_sampled(self, call, tmp_path):
        path = tmp_path / "log.csv"
        path.write_text(
            "timestamp,gpu,power_w,gpu_use_percent\n1754585903,0,100,50\n1754585904,0,300,\n"
        )
        lines = [line.split() for line in call("summary", path).splitlines()]
        assert ["power", "W", "2", "100", "200", "300"] in lines
        assert ["gpu_busy", "%", "1", "50", "50", "50"] in lines

    def test_devices_are_not_averaged(self, call, tmp_path):
        path = tmp_path / "log.csv"
        rows = [
            f"175458590{time},{device},{power}\n"
            for time in (1, 2)
            for device, power in ((0, 700), (1, 140))
        ]
        path.write_text("timestamp,gpu,power_w\n" + "".join(rows))
        lines = [line.split() for line in call("summary", path).splitlines()]
        assert [
            "sampled",
            "unit",
            "devices",
            "samples",
            "lowest",
            "mean",
            "of",
            "each",
            "highest",
        ] in lines
        assert ["power", "W", "2", "4", "140", "140", "to", "700", "700"] in lines

    def test_counters_without_a_unit(self, call, tmp_path):
        path = tmp_path / "log.csv"
        path.write_text("timestamp,gpu,power_w,waves\n1754585903,0,100,7\n1754585904,0,,9\n")
        lines = [line.split() for line in call("summary", path).splitlines()]
        assert ["power", "W", "1", "100", "100", "100"] in lines
        assert ["waves", "2", "7", "8", "9"] in lines

    def test_no_counter_has_a_unit(self, call, recordings):
        text = call("summary", recordings / "rocprofv3-csv-docs" / "counter_collection.csv")
        heading, *rows = text.partition("\n\n")[2].splitlines()
        assert heading.split() == ["sampled", "samples", "lowest", "mean", "highest"]
        assert {len(row.split()) for row in rows} == {5}

    def test_warnings_and_repairs_are_shown(self, call, tmp_path):
        events = [operator("aten::linear", 1000 + place, 5, place) for place in range(150)]
        lost = operator("aten::lost", 0, 5, 150)
        started = TraceEvent("cuda_runtime", "hipLaunchKernel", 2000, 5, 1, 1, {"correlation": 1})
        text = call("summary", write_trace(tmp_path / "no_gpu.json", [*events, lost, started]))
        assert re.search(r"^warning +no_gpu\.json: no event on a GPU", text, re.MULTILINE)
        assert re.search(r"^repaired +dropped events at time zero: 1$", text, re.MULTILINE)


class TestTables:
    def test_kernels_of_a_recording(self, call, recordings, tmp_path):
        path = recordings / "torch-mi300x-resnet-ddp-rank0" / "resnet_act_checkpoint.json.gz"
        text = call("kernels", path, "--csv", tmp_path / "out.csv")
        assert re.search(r"^ncclDevKernel_Generic +17 +71\.517 ", text, re.MULTILINE)
        expected = kernels(read_torch_trace(path))
        assert len(text.splitlines()) == len(expected) + 2, "heading, all kernels, origin"
        exported = pd.read_csv(tmp_path / "out.csv")
        assert exported["total_ns"].tolist() == expected["total_ns"].tolist()
        assert exported["name"].tolist() == expected["name"].tolist()
        assert (exported["origin"] == str(expected.attrs["origin"])).all()

    def test_top(self, call, trace):
        assert "and 2 more with 0.030 ms" in call("kernels", trace, "--top", "1")

    def test_busy(self, call, trace):
        row = call("busy", trace).splitlines()[1]
        assert row.split() == ["0", "2", "0.059", "0.050", "83.2", "0.064", "107.6", "5"]

    def test_steps(self, call, trace):
        heading, row, *_ = call("steps", trace).splitlines()
        assert heading.split()[:5] == ["rank", "device", "step", "time", "ms"]
        assert row.split()[:4] == ["0", "2", "1", "0.100"]

    @pytest.mark.parametrize(
        ("timeline", "clock"), [("host", "clock: the host's,"), ("device", "clock: the device's:")]
    )
    def test_steps_and_triage_say_whose_clock_it_is(self, timeline, clock, call, trace):
        assert clock in call("steps", trace, "--timeline", timeline)
        assert " 1 step of 0.03 ms on the device (step_budget)" in call("triage", trace)

    def test_without_a_device_there_is_one_clock(self, call, tmp_path):
        path = write_trace(
            tmp_path / "cpu.json",
            [*small_step()[:2], operator("aten::linear", 1_000_500, 2_000, 1)],
            header={"schemaVersion": 1},
        )
        assert "clock" not in call("steps", path)

    def test_compare(self, call, trace, tmp_path):
        faster = write_trace(tmp_path / "after.json", [kernel(LONG_NAME, 1_080_000, 4_000, 20)])
        text = call("compare", trace, faster, "--json", tmp_path / "out.json")
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
        total, steps, _, row, rest, _ = call("compare", *paths).splitlines()
        assert total == "3 kernels, 0.011 ms a step before and 0.031 ms after: +0.020 ms (+181.2 %)"
        assert steps == (
            "steps: 4 of 900.0 µs before and 2 of 900.0 µs after (median, on the host, over all"
            " ranks); calls and times are those of one"
        )
        assert row.split() == ["long_one", "1", "1", "0.010", "0.030", "+0.020"]
        assert rest.startswith(
            "2 others, each changed by less than 1 % of the time (0.000 ms), together +0.000 ms"
        )
        assert len(call("compare", *paths, "--top", "0").splitlines()) == 7

    def test_recordings_of_which_one_marks_no_step_are_compared_whole(self, call, trace, tmp_path):
        unmarked = write_trace(tmp_path / "after.json", [kernel(LONG_NAME, 1_080_000, 4_000, 20)])
        _, steps, *_ = call("compare", trace, unmarked).splitlines()
        assert steps.startswith("steps: 1 of ")
        assert " before and none marked after (median, on the host" in steps
        assert "; calls and times are of whole" in steps
        _, steps, *_ = call("compare", unmarked, unmarked).splitlines()
        assert steps.startswith("steps: none marked before and none marked after; calls and times")

    def test_equal_recordings_have_no_row(self, call, trace):
        total, _, rest, _ = call("compare", trace, trace).splitlines()
        assert total.endswith(": +0.000 ms (+0.0 %)")
        assert rest.startswith("3 kernels, each changed by less than 1 % of the time")

    def test_several_files(self, call, trace, tmp_path):
        header = HEADER | {"distributedInfo": {"rank": 1}}
        second = write_trace(tmp_path / "rank1.json", small_step(), header=header)
        text = call("busy", trace, second, "--csv", tmp_path / "out.csv")
        assert f"{second}:" in text
        assert pd.read_csv(tmp_path / "out.csv")[["file", "rank"]].to_numpy().tolist() == [
            [str(trace), 0],
            [str(second), 1],
        ]

    def test_each_row_has_its_own_origin(self, call, trace, tmp_path):
        modelled = tmp_path / "modelled_run.json"
        modelled.write_text(
            json.dumps(json.loads(trace.read_text()) | {"modelled": {"error": "within 15 %"}})
        )
        for command in ("summary", "busy"):
            call(command, modelled, trace, "--csv", tmp_path / "out.csv")
            table = pd.read_csv(tmp_path / "out.csv")
            assert table.columns[-1] == "origin"
            assert table[["file", "origin"]].to_numpy().tolist() == [
                [str(modelled), "modelled: within 15 %"],
                [str(trace), "recorded: AMD Instinct MI300X, ROCm 6.4"],
            ]

    def test_steps_of_a_gpu_and_of_a_cpu_are_shown_but_make_no_table(self, trace, tmp_path, capsys):
        cpu = write_trace(
            tmp_path / "cpu.json",
            [operator("aten::linear", 1000, 2000, 1)],
            header={"schemaVersion": 1},
        )
        assert cli.main(["steps", str(trace), str(cpu)]) == 0
        capsys.readouterr()
        assert cli.main(["steps", str(trace), str(cpu), "--csv", str(tmp_path / "out.csv")]) == 2
        assert "give recordings of one kind at a time" in capsys.readouterr().err
        assert not (tmp_path / "out.csv").exists()

    @pytest.mark.parametrize("command", ["summary", "kernels", "busy", "steps"])
    def test_exports_agree(self, call, command, trace, tmp_path):
        require(find_spec("pyarrow") is not None, "pyarrow")
        call(
            command, trace, *(f"--{kind}={tmp_path / kind}" for kind in ("csv", "json", "parquet"))
        )
        from_parquet = pd.read_parquet(tmp_path / "parquet")
        records = json.loads((tmp_path / "json").read_text())
        assert len(from_parquet) == len(records) == len(pd.read_csv(tmp_path / "csv"))
        assert (
            list(from_parquet.columns)
            == list(records[0])
            == list(pd.read_csv(tmp_path / "csv").columns)
        )
        for row, record in zip(from_parquet.to_dict("records"), records, strict=True):
            for name, value in record.items():
                assert (value is None and pd.isna(row[name])) or value == pytest.approx(row[name])

    def test_what_marks_the_steps_is_said(self, call, trace, recordings):
        assert "steps: marked by the profiler, ProfilerStep#N" in call("steps", trace)
        resnet18 = recordings / "torch-mi300x-resnet18-train"
        words = "from each `Optimizer.zero_grad#SGD.zero_grad` to the next"
        assert words in call("summary", resnet18)
        assert f"steps: {words}" in call("steps", resnet18)
        assert "steps: from each `aten::conv2d` to the next" in call(
            "steps", resnet18, "--mark", "aten::conv2d"
        )
        sglang = recordings / "torch-mi300x-sglang-decode"
        for command in ("summary", "steps"):
            assert "none marked; `steps --mark NAME` takes a range or an operator" in call(
                command, sglang
            )

    def test_an_unknown_mark(self, trace, capsys):
        assert cli.main(["steps", str(trace), "--mark", "zero"]) == 2
        assert "no range, operator or call on the host is named 'zero'" in capsys.readouterr().err

    def test_nanoseconds_stay_whole(self, call, trace, tmp_path):
        call("steps", trace, "--json", tmp_path / "out.json", "--csv", tmp_path / "out.csv")
        start = int(read_torch_trace(trace).events["start_ns"].min())
        assert f'"start_ns":{start}' in (tmp_path / "out.json").read_text()
        assert str(start) in (tmp_path / "out.csv").read_text()

    def test_nothing_to_show(self, call, recordings, tmp_path):
        gpu_only = recordings / "torch-mi210-gpu-only" / "gpu_only_trace.json.gz"
        text = call("steps", gpu_only, "--timeline", "device")
        assert text.startswith("No steps are marked")
        empty = recordings / "rocprofv3-csv-docs" / "counter_collection.csv"
        assert call("steps", empty).startswith("There are no events in this recording.")
        cpu = write_trace(
            tmp_path / "cpu.json",
            [operator("aten::linear", 1000, 2000, 1)],
            header={"schemaVersion": 1},
        )
        for command in ("kernels", "busy"):
            assert call(command, cpu).startswith("There ")


class TestConvert:
    def test_what_it_writes_can_be_read(self, call, trace, tmp_path):
        text = call("convert", trace, tmp_path / "out.json.gz")
        assert "2 arrows" in text
        after = read_torch_trace(tmp_path / "out.json.gz")
        pd.testing.assert_frame_equal(busy(after), busy(read_torch_trace(trace)))

    def test_modelled_numbers_stay_modelled(self, call, trace, tmp_path):
        trace.write_text(
            json.dumps(json.loads(trace.read_text()) | {"modelled": {"error": "within 15 %"}})
        )
        call("convert", trace, tmp_path / "out.json")
        assert "origin: modelled: within 15 %" in call("busy", tmp_path / "out.json")

    @pytest.mark.parametrize(
        ("target", "words"),
        [("out.pb", "ends in .json"), ("no/out.json", "its folder is not there")],
    )
    def test_refusals(self, trace, tmp_path, monkeypatch, capsys, target, words):
        monkeypatch.setattr("tidyprof.cli.output.read", None)  # said before anything is read
        assert cli.main(["convert", str(trace), str(tmp_path / target)]) == 2
        shown = capsys.readouterr()
        assert words in shown.err
        assert shown.err.count("\n") == 1


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
        assert "would be lost" in refused("kernels", trace, "--json", trace, kept=trace)
        assert "would be lost" in refused("convert", trace, trace, kept=trace)
        assert "would be lost" in refused("compare", trace, trace, "--csv", trace, kept=trace)

    def test_under_another_name(self, refused, trace, tmp_path):
        for number, link in enumerate((os.symlink, os.link)):
            other = tmp_path / f"link{number}.json"
            link(trace, other)
            assert "would be lost" in refused("summary", trace, "--csv", other, kept=trace)

    def test_a_file_of_the_folder(self, refused, trace):
        assert "would be lost" in refused("busy", trace.parent, "--csv", trace, kept=trace)
        assert "would be lost" in refused("convert", trace.parent, trace, kept=trace)

    def test_a_file_of_a_start_of_names(self, refused, tmp_path):
        path = write_results(tmp_path / "1_results.json", [Kernel("fill", 1000, 10, 1)])
        assert "would be lost" in refused("busy", tmp_path / "1", "--json", path, kept=path)

    def test_one_name_for_two_formats(self, refused, trace, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        message = refused(
            "busy", trace, "--csv", "out.txt", "--json", tmp_path / "out.txt", kept=trace
        )
        assert "both --csv and --json would write it" in message

    def test_a_new_file_in_the_folder_may_be_written(self, call, trace):
        call("busy", trace.parent, "--csv", trace.parent / "busy.csv")
        assert len(pd.read_csv(trace.parent / "busy.csv")) == 1


REFUSED = [
    ([], "required: COMMAND; choose one of summary, kernels, busy, "),
    (["tables", "x"], "invalid choice"),
    (["kernels"], "required: FILE"),
    (["kernels", "x", "--top", "many"], "no number such as 10"),
    (
        ["kernels", "x", "--pre-device"],
        "--pre-device; did you mean --per-device?; see tidyprof kernels --help",
    ),
    (["busy", "x", "--pre-device"], "--pre-device; see tidyprof busy --help"),
    (["compare", "one"], "required"),
    (["kernels", "/nowhere/trace.json"], "no such file"),
    (["steps", "TRACE", "--timeline", "device"], "no launch records"),
    (["busy", "TRACE", "--csv", "/nowhere/out.csv"], "its folder is not there"),
    (["busy", "TRACE", "--csv", "/tmp"], "no file can have this name"),
    (["busy", "TRACE", "--csv", ""], "no file can have this name"),
    (["busy", "TRACE", "--csv", "-"], "no file can have this name"),
]


@pytest.mark.parametrize(
    ("arguments", "words"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED]
)
def test_errors_are_one_line(arguments, words, tmp_path, capsys):
    step = TraceEvent("user_annotation", "ProfilerStep#1", 1000, 5000, arguments={"External id": 1})
    trace = write_trace(tmp_path / "trace.json", [step, kernel("gemm", 2000, 500, 1)])
    assert code_of(*(trace if argument == "TRACE" else argument for argument in arguments)) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out, "said before any work is done"


@pytest.mark.parametrize(
    ("arguments", "beginnings"),
    [
        (
            ["busy", f"/nowhere/{'trace-' * 8}.json"],
            ["error: /nowhere/", "  Likely cause: ", "  Next step: "],
        ),
        (["timeline"], ["error: "]),
    ],
    ids=["no file", "no command"],
)
def test_an_error_on_a_terminal_is_broken_between_words(arguments, beginnings, on_screen, capsys):
    shown = on_screen(*arguments, code=2)
    assert code_of(*arguments) == 2
    assert max(map(len, shown)) <= 80
    assert " ".join(map(str.strip, shown)) + "\n" == capsys.readouterr().err
    assert all(any(line.startswith(beginning) for line in shown) for beginning in beginnings)
    assert all(line.startswith("  ") for line in shown[1:])


def test_parquet_without_pyarrow(trace, monkeypatch, capsys):
    monkeypatch.setattr("tidyprof.cli.output.find_spec", lambda name: None)
    assert cli.main(["busy", str(trace), "--parquet", "out.parquet"]) == 2
    shown = capsys.readouterr()
    assert "pip install pyarrow" in shown.err
    assert not shown.out, "said before any work is done"


@pytest.mark.parametrize("command", ["busy", "gate"])
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
        for command in ("summary", "kernels", "busy", "steps"):
            text = call(command, trace)
            assert "\x1b" not in text
            assert text.isascii() or set(re.sub(r"[ -~\n]", "", text)) <= {"µ"}, "no boxes"
            assert not re.search(r"[ \t]$", text, re.MULTILINE)
        text = call("kernels", trace)
        for name in kernels(read_torch_trace(trace))["short_name"]:
            assert f"{name}  " in text

    def test_a_pipe_that_closes_early(self, four_ranks):
        command = f"{sys.executable} -m tidyprof kernels {four_ranks} | head -1"
        done = subprocess.run(
            command, shell=True, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.stdout.startswith("kernel ")
        assert done.stderr == ""

    @pytest.mark.parametrize("command", ["summary", "kernels", "busy", "steps", "compare"])
    def test_files_are_written_although_the_pipe_is_closed(
        self, command, trace, tmp_path, monkeypatch, capsys
    ):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as closed:
            monkeypatch.setattr(sys, "stdout", closed)
            assert (
                cli.main([command, str(trace), str(trace), "--csv", str(tmp_path / "out.csv")]) == 0
            )
        assert capsys.readouterr().err == ""
        assert len(pd.read_csv(tmp_path / "out.csv")) >= 2

    def test_a_closed_pipe_ends_a_command_that_writes_no_file(self, trace):
        reader, writer = os.pipe()
        os.close(reader)
        arguments = [sys.executable, "-m", "tidyprof", "busy", trace, "/nowhere/never_read.json"]
        done = subprocess.run(
            arguments,
            cwd=REPOSITORY,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, "")

    def test_a_full_disk_is_one_line(self, trace):
        require(Path("/dev/full").exists(), "/dev/full")
        with open("/dev/full", "w") as full:
            arguments = [sys.executable, "-m", "tidyprof", "kernels", trace]
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
        [("gate missing new", 2), ("busy TRACE", 0)],
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

    @pytest.mark.parametrize("module", ["tidyprof.cli.main", "numpy"])
    def test_a_bug_closes_no_gate_where_no_message_can_be_written(self, module, trace):
        require(Path("/dev/full").exists(), "/dev/full")
        code = (
            f"import runpy, sys; sys.modules[{module!r}] = None; runpy.run_module('tidyprof',"
            " run_name='__main__')"
        )
        with open("/dev/full", "w") as full:
            arguments = [sys.executable, "-c", code, "gate", trace, trace]
            done = subprocess.run(arguments, cwd=REPOSITORY, stderr=full, timeout=PATIENCE_S)
        assert done.returncode == 3

    def test_a_closed_output_keeps_the_files(self, trace, tmp_path):
        target = tmp_path / "busy.csv"
        line = f"{sys.executable} -m tidyprof busy {trace} --csv {target} >&-"
        done = subprocess.run(
            line, shell=True, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert len(pd.read_csv(target))

    def test_output_may_be_any_stream(self, trace, call):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            assert cli.main(["kernels", str(trace)]) == 0
        assert shown.getvalue() == call("kernels", trace)

    @pytest.mark.parametrize("command", sorted({*COMMANDS} - {"hang", "isa", "convert"}))
    def test_json_on_standard_output_and_nothing_else(
        self, command, trace, other, tmp_path, capsys
    ):
        files = [trace, other] if command in ("compare", "gate") else [trace]
        assert cli.main([command, *map(str, files), "--json", str(tmp_path / "out.json")]) == 0
        capsys.readouterr()
        assert cli.main([command, *map(str, files), "--json", "-"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(
            (tmp_path / "out.json").read_text()
        )
        assert not os.path.exists("-")

    def test_json_on_a_pipe_that_closes_keeps_files_and_exit_code(
        self, trace, tmp_path, monkeypatch, capsys
    ):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as closed:
            monkeypatch.setattr(sys, "stdout", closed)
            options = ["--json", "-", "--csv", str(tmp_path / "out.csv")]
            assert cli.main(["kernels", str(trace), *options]) == 0
        assert capsys.readouterr().err == ""
        assert len(pd.read_csv(tmp_path / "out.csv")) >= 2

    def test_json_on_a_full_disk_is_one_line(self, trace):
        require(Path("/dev/full").exists(), "/dev/full")
        line = f"{sys.executable} -m tidyprof busy {trace} --json - >/dev/full"
        done = subprocess.run(
            line, shell=True, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith("error: standard output: ")

    def test_ctrl_c_while_starting(self, trace, monkeypatch):
        def interrupt(name):
            raise KeyboardInterrupt

        monkeypatch.setattr(cli, "import_module", interrupt)
        assert cli.main(["busy", str(trace)]) == 130

    def test_a_terminal_without_utf_8(self, trace):
        done = run("kernels", trace, PYTHONIOENCODING="ascii")
        assert done.returncode == 0
        assert "mean ?s" in done.stdout

    @pytest.mark.parametrize("command", ["summary", "kernels", "busy", "steps"])
    def test_a_terminal_of_80_columns(self, command, on_screen, four_ranks):
        lines = on_screen(command, four_ranks)
        assert max(map(len, lines)) <= 80
        assert len(lines) > 3

    def test_of_several_texts_below_a_label_the_lines_that_go_on_are_indented(self, on_screen):
        """Else nobody sees where the next piece of evidence begins."""
        lines = on_screen("triage", REPOSITORY / "recordings/modelled-resnet/torch")
        (number,) = (i for i, line in enumerate(lines) if " exposed-copies: " in line)
        at = lines[number].index("exposed-copies")
        assert lines[number + 1][: at + 2].isspace()
        assert lines[number + 1][at + 2] != " "

    def test_a_summary_of_ranks_without_a_gpu_says_where_they_are_compared(self, on_screen):
        lines = on_screen(
            "summary", REPOSITORY / "packages/tidyprof/tests/strangers/traces/two_rank_recommender"
        )
        assert "tidyprof triage compares what their hosts did" in " ".join(" ".join(lines).split())

    def test_a_summary_of_ranks_with_copies_alone_denies_no_events_on_a_device(
        self, on_screen, tmp_path
    ):
        events = [
            operator("aten::to", 1_000_000, 5_000_000, 1),
            TraceEvent(
                "gpu_memcpy",
                "Memcpy HtoD (Host -> Device)",
                2_000_000,
                3_000_000,
                arguments={"device": 2, "stream": 0},
            ),
        ]
        for rank in (0, 1):
            header = HEADER | {"distributedInfo": {"rank": rank, "world_size": 2}}
            write_trace(tmp_path / f"trace_rank{rank}.json", events, header=header)
        said = " ".join(" ".join(on_screen("summary", tmp_path)).split())
        assert "busy rank 1, device 2: 100.0 %" in said
        assert "waiting No collective could be compared between ranks." in said

    def test_a_row_is_a_line_whose_name_is_shortened_but_stays_apart(
        self, call, on_screen, tmp_path
    ):
        begin, end = "a_name_that_begins", "and_ends_as_others"
        names = [f"{one}_{begin}_{end}_as_do" for one in ("first", "second")]
        path = write_trace(
            tmp_path / "trace.json",
            [kernel(name, 1_000_000 + n * 1000, 500, n) for n, name in enumerate(names)],
        )
        lines = on_screen("kernels", path, columns=60)
        assert max(map(len, lines)) <= 60
        rows = [line.split()[0] for line in lines if " 0.001 " in line]
        assert [row.partition("_")[0] for row in rows] == ["first", "second"]
        assert all("…" in row for row in rows)
        assert len(lines) - len(rows) == 5, "headings and rule, what … is, origin"
        assert any("a pipe gets the whole names" in line for line in lines)
        assert all(name in call("kernels", path) for name in names)

    def test_names_that_would_look_alike_are_folded(self, on_screen, tmp_path):
        names = [f"{'a' * 27}{one}{'b' * 27}" for one in "xy"]
        path = write_trace(
            tmp_path / "trace.json",
            [kernel(name, 1_000_000 + n * 1000, 500, n) for n, name in enumerate(names)],
        )
        shown = "".join(
            line.split("  ")[0].strip() for line in on_screen("kernels", path, columns=55)
        )
        assert all(name in shown for name in names)

    def test_what_the_compiler_made_is_a_line_for_each_kernel(self, on_screen):
        lines = on_screen("isa", REPOSITORY / "lessons/16_compiler/compiled/3.9.0")
        assert max(map(len, lines)) <= 80
        rows = [line for line in lines if line.startswith((" matmul ", " add_norm"))]
        assert len(rows) == 2 * 16
        assert len({row.partition("  ")[0] for row in rows[:16]}) == 16
        assert len({row.partition("  ")[0] for row in rows[16:]}) == 16

    def test_a_minus_is_as_wide_as_a_plus_and_a_pipe_keeps_the_hyphen(
        self, call, on_screen, trace, tmp_path
    ):
        faster = write_trace(tmp_path / "after.json", [kernel(LONG_NAME, 1_080_000, 4_000, 20)])
        assert any(
            line.endswith("\N{MINUS SIGN}0.006") for line in on_screen("compare", trace, faster)
        )
        assert "-0.006" in call("compare", trace, faster)
        models = [
            REPOSITORY / f"recordings/modelled-{name}/torch" for name in ("resnet", "tiny-batch")
        ]
        shown = " ".join(on_screen("gate", *models))
        assert "now (\N{MINUS SIGN}50.0 %)" in shown, "in sentences, too"
        assert "now (-50.0 %)" in call("gate", *models)

    @pytest.mark.parametrize("columns", range(60, 81, 4))
    def test_a_number_and_its_unit_are_on_one_line(self, columns, on_screen):
        lines = on_screen("triage", MODELLED / "torch", columns=columns)
        lines += on_screen("summary", MODELLED / "torch", columns=columns)
        assert not [line for line in lines if re.match(r" *(%|ms|µs)[ ,.:;)]", line)]
        assert "1 calls" not in " ".join(" ".join(lines).split())

    @pytest.mark.parametrize("columns", [60, 30])
    def test_a_narrow_terminal_shortens_no_number(self, columns, call, on_screen, tmp_path, trace):
        ranks = tmp_path / "ranks"
        ranks.mkdir()
        for rank in range(4):
            header = HEADER | {
                "distributedInfo": {"rank": rank, "world_size": 4, "backend": "nccl"}
            }
            long = kernel("long", 1_080_000, 3 * 10**12, 20)
            write_trace(ranks / f"rank{rank}.json", [*small_step(), long], header=header)
        for arguments in (
            ["steps", ranks],
            ["busy", ranks],
            ["compare", trace, ranks, "--top", "9"],
        ):
            shown = " ".join(on_screen(*arguments, columns=columns))
            cells = shown.replace("\N{MINUS SIGN}", "-").split()
            piped = " ".join(call(*arguments).splitlines()[1:-1]).split()
            numbers = [cell for cell in piped if re.fullmatch(r"[-+]?[\d,]+\.\d+", cell)]
            assert numbers
            assert not set(numbers) - set(cells)

    def test_a_name_keeps_a_few_columns_on_the_narrowest_terminal(self, on_screen, trace):
        lines = on_screen("kernels", trace, columns=20)
        name = f"{LONG_NAME[:3]}…{LONG_NAME[-4:]}"
        assert name in [line.strip().split(" ")[0] for line in lines]

    def test_long_tables_are_cut_on_a_terminal_and_it_is_said(self, four_ranks):
        lines = in_terminal("kernels", four_ranks)
        assert any(re.match(r"and \d+ more with", line) for line in lines)
        assert len(lines) < len(in_terminal("kernels", four_ranks, "--top", "0"))

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
            "kernels", path, "--csv", tmp_path / "kernels.csv", "--json", tmp_path / "kernels.json"
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


def test_steps_of_several_processes_say_whose_they_are(capsys):
    show_steps(step_budget(two_processes(phased)), "host")
    heading, *rows, marked_by = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["process", "device", "step"]
    assert marked_by == "steps: from each `data` to the next"
    assert [row.split()[:3] for row in rows] == [
        ["1", "1", "0"],
        ["1", "1", "1"],
        ["2", "2", "0"],
        ["2", "2", "1"],
    ]


# Files of a folder that are not read

LEFT_OUT = "not read: rank1.json (no file of this tool, or damaged at its start)"


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


@pytest.mark.parametrize(
    "command", sorted({*COMMANDS} - {"hang", "isa"})
)  # dumps and assembly are no recordings
def test_every_command_names_what_was_not_read(command, half, other, tmp_path, capsys):
    second = {"compare": [half], "gate": [other], "convert": [tmp_path / "out.json"]}
    assert cli.main([command, *map(str, [half, *second.get(command, [])])]) == 0
    shown = capsys.readouterr()
    assert LEFT_OUT in shown.out + shown.err
    assert (LEFT_OUT in shown.out) is (command in ("summary", "triage", "gate"))


@pytest.mark.parametrize(
    "options", [["--jobs", "2"], ["--html"]], ids=["each file alone", "the whole folder"]
)
def test_a_diagnosis_names_what_was_not_read_wherever_it_goes(options, half, tmp_path, capsys):
    if options == ["--html"]:
        options = ["--html", str(tmp_path / "page.html")]
    assert cli.main(["triage", str(half), "--json", str(tmp_path / "verdict.json"), *options]) == 0
    assert capsys.readouterr().out.count(LEFT_OUT) == 1
    assert json.loads((tmp_path / "verdict.json").read_text())["unknown"][0] == LEFT_OUT
    if "--html" in options:
        assert html.escape(LEFT_OUT) in (tmp_path / "page.html").read_text()


def test_reports_of_the_gate_name_what_was_not_read(half, other, tmp_path):
    reports = {kind: tmp_path / f"verdict.{kind}" for kind in ("json", "junit", "markdown")}
    options = [word for kind, path in reports.items() for word in (f"--{kind}", str(path))]
    assert cli.main(["gate", str(half), str(other), *options]) == 0
    for path in reports.values():
        assert f"{half}: {LEFT_OUT}" in path.read_text()


def test_what_is_no_file_is_named(half, capsys):
    (half / "rank1.json").unlink()
    (half / "rank1.json").symlink_to(half / "nowhere")
    (half / "rank3.json").symlink_to(half / "rank3.json")
    (half / "rank4.json").mkdir()
    os.mkfifo(half / "rank5.json")
    (half / ".rank6.json").mkdir()
    assert cli.main(["busy", str(half)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == (
        "warning: not read, 4 in all: rank1.json, rank3.json (a link that leads nowhere);"
        " rank4.json (a folder in the place of a file); rank5.json (a pipe, socket or device)"
    )


def test_recordings_of_several_tools_beside_the_one_that_is_read_are_one_line(capsys):
    folders = [REPOSITORY / f"recordings/modelled-{name}/rocpd" for name in ("resnet", "vit")]
    assert cli.main(["compare", *(str(folder.parent) for folder in folders)]) == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("warning: not read, 8 in all: amd-smi, omnistat, perfetto, ")
    assert told.endswith("torch (recordings of their own, by other tools)")


def test_files_that_say_the_same_are_one_line(tmp_path, capsys):
    write_results(tmp_path / "1_results.json", [Kernel("k", 1, 10, 1)])
    for kind in ("hip_api", "marker_api", "hsa_api", "rccl_api"):
        (tmp_path / f"1_{kind}_trace.csv").write_text(call_csv([Call("roctxMark", 5, 5, 1)]))
    for number in range(10):
        os.mkfifo(tmp_path / f"{number}.json")
    assert cli.main(["busy", str(tmp_path)]) == 0
    (told,) = (line for line in capsys.readouterr().err.splitlines() if "not read" in line)
    assert told.startswith("warning: not read, 14 in all: 1_")
    assert "_trace.csv (what was read says the same); 0.json, 1.json, " in told
    assert told.endswith("7.json and 2 more (a pipe, socket or device)")


STATISTICS = """"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"Cijk_Ailk_Bljk_BBS_BH_MT256x256x64",400,160000000,400000.0,80.0,390000,410000,5000.0
"copy_them",2000,40000000,20000.0,20.0,19000,21000,400.0
"""


@pytest.mark.parametrize("command", ["kernels", "summary", "busy"])
@pytest.mark.parametrize("subject", ["kernel", "hip_api"])
def test_a_folder_with_statistics_only_says_what_it_holds(command, subject, tmp_path, call):
    (tmp_path / f"1_{subject}_stats.csv").write_text(STATISTICS)
    shown = call(command, tmp_path)
    words = " ".join(shown.split())
    assert re.search(
        rf"Only sums by name are here, no single (kernels|events): 2 rows of {subject} ", words
    )
    assert "There are no" not in words
    if command != "busy" and subject == "kernel":
        (row,) = (line.split() for line in shown.splitlines() if "MT256x256x64" in line)
        assert row[-3:] == ["400", "160.000", "80.0"]
