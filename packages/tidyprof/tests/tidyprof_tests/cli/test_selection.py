"""Options that choose steps of a recording, what is compared, and the version."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pandas as pd
import pytest

from tidyprof.analyses.operators import operators
from tidyprof.cli import main as cli
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof_tests.chrome_writer import HEADER, TraceEvent, call, kernel, operator, write_trace
from tidyprof_tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S


@pytest.fixture
def run(capsys):
    """The command line in this process: its exit code, output and errors."""

    def main(*arguments: object) -> tuple[int, str, str]:
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return main


@pytest.fixture
def recording(tmp_path):
    """Steps 7 and 8 of 10 ms; each launches a kernel, which runs 10 ms later, for 3 and 4 ms."""
    events = []
    for step, start in ((7, 1_000_000), (8, 11_000_000)):
        events += [
            TraceEvent("user_annotation", f"ProfilerStep#{step}", start, 10_000_000),
            operator("aten::mm", start + 1_000, 50_000, step),
            call("hipLaunchKernel", start + 2_000, 10, step, **{"External id": step}),
            kernel(
                f"gemm{step}",
                start + 10_000_000,
                (step - 4) * 1_000_000,
                step,
                **{"External id": step},
            ),
        ]
    return write_trace(tmp_path / "trace.json", events, header=HEADER)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--steps", "7"), {"gemm7"}),
        (("--steps", "7-8"), {"gemm7", "gemm8"}),
    ],
)
def test_kernels_of_a_part(run, recording, tmp_path, options, shown):
    code, out, _ = run("table", "kernels", recording, *options, "--csv", tmp_path / "out.csv")
    assert code == 0
    assert set(pd.read_csv(tmp_path / "out.csv")["name"]) == shown
    assert "part: " in out


def test_busy_and_summary_of_a_part(run, recording):
    assert "4.000  100.0" in run("table", "busy", recording, "--steps", "8")[1]
    _, out, _ = run("summary", recording, "--steps", "7")
    assert "part" in out
    assert "gemm7" in out
    assert "gemm8" not in out
    assert "part" not in run("summary", recording)[1]


@pytest.mark.parametrize(
    "options",
    [
        "--steps=9",
        "--steps=1 --step-marker=forward",
        "--steps=8-7",
        "--steps=x",
    ],
)
@pytest.mark.parametrize("command", ["summary", "table kernels", "table busy"])
def test_errors_are_one_line(run, recording, command, options):
    code, out, err = run(*command.split(), recording, *options.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_two_recordings_of_a_processor_are_compared_by_operator(run, tmp_path):
    names = ("torch-cpu-vit", "torch-cpu-vit-compiled")
    paths = [REPOSITORY / "recordings" / name / "trace_rank0_of_1.json.gz" for name in names]
    code, out, _ = run("table", "compare", *paths, "--json", tmp_path / "out.json")
    assert code == 0
    assert out.startswith("132 operators, 568.111 ms")
    own = [operators(read_torch_trace(path)).set_index("name")["self_ns"] for path in paths]
    rows = {row["operator"]: row for row in json.loads((tmp_path / "out.json").read_text())}
    assert rows.keys() == {*own[0].index, *own[1].index}
    for side, expected in zip(("before", "after"), own, strict=True):
        assert {
            name: row[f"total_ns_{side}"] for name, row in rows.items() if name in expected
        } == expected.to_dict()


def test_version(run):
    assert run("--version")[:2] == (0, f"tidyprof {version(cli.DISTRIBUTION)}\n")


def test_version_imports_nothing_heavy():
    code = (
        "import sys\nfrom tidyprof.cli.main import main\ntry:\n    main(['--version'])\nexcept"
        " SystemExit:\n    print(sorted({'pandas', 'numpy', 'rich', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
