"""The pages in packages/tidyprof/docs say what the code does: columns, entries, doors, commands,
and examples that run.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import tidyprof
from tidyprof import analyses, plots
from tidyprof.analyses.common import COLUMNS as TABLES
from tidyprof.analyses.common import PLACE
from tidyprof.gate.verdict import judge
from tidyprof.tables.contract import (
    COUNTER_COLUMNS,
    COUNTER_DTYPES,
    EVENT_COLUMNS,
    KINDS,
)
from tidyprof_tests.conftest import HOUSE
from tidyprof_tests.readers.test_rocprof_sys import TREE, document

from . import (
    compute_writer,
    perfetto_writer,
    rocpd_writer,
    rocprofv3_writer,
    rpd_writer,
    snapshot_writer,
)
from .chrome_writer import call, small_step, write_trace

FOLDER = HOUSE / "docs"
README = (FOLDER / "README.md").read_text(encoding="utf-8")


_OTHER_NAMES = {
    "step_budget": "device_budget",
    "compare": "kernel_comparison",
}
COLUMNS = {
    name: columns
    for name, columns in TABLES.items()
    if name in {*analyses.__all__} - {"collective_entries"}
} | {name: TABLES[table] for name, table in _OTHER_NAMES.items()}
DOORS = {
    "read_torch_trace": "torch_trace",
    "read_rocprofv3": "rocprofv3",
    "read_rocpd": "rocpd",
    "read_rocprof_v1": "rocprof_v1",
    "read_perfetto": "perfetto",
    "read_rocprof_sys": "rocprof_sys",
    "read_rocprof_compute": "rocprof_compute",
    "read_rpd": "rpd",
    "read_system": "system",
    "read_memory_snapshot": "memory_snapshot",
}


def rows() -> list[list[str]]:
    lines = [line for line in README.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def documented(name: str) -> list[str]:
    """The columns in the row of the analysis of this name."""
    (cells,) = [row for row in rows() if len(row) == 3 and row[1] == f"`{name}`"]
    return [column for column in re.findall(r"`([^`]+)`", cells[2]) if "<" not in column]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_analyses(name):
    assert documented(name) == [column for column in COLUMNS[name] if column not in PLACE]


def test_every_analysis_and_every_plot_is_described():
    named = set(re.findall(r"`(?:plots\.)?(\w+)", README))
    assert set(analyses.__all__) <= named
    assert set(plots.__all__) - {"TidyFigure"} <= named


@pytest.mark.parametrize("dtypes", [EVENT_COLUMNS, COUNTER_DTYPES], ids=["events", "counters"])
def test_the_contract(dtypes):
    table = {
        name.strip("` "): row[1] for row in rows() if len(row) == 4 for name in row[0].split(",")
    }
    assert {name: table[name] for name in dtypes} == dtypes
    assert [name for name in (*KINDS, *COUNTER_COLUMNS) if f"`{name}`" not in README] == []


@pytest.mark.parametrize("door", DOORS)
def test_doors(door):
    (row,) = [row for row in rows() if row[0] == f"`{door}`"]
    assert row[-1] == f"[{DOORS[door]}.md]({DOORS[door]}.md)"
    assert callable(getattr(tidyprof, door))


def first_block(text: str) -> str:
    """The first example in Python of a page."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def run(code: str, folder: Path, monkeypatch, **variables: object) -> dict:
    """The variables after running code in a folder."""
    monkeypatch.chdir(folder)
    exec(code, variables)
    return variables


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    write_trace(tmp_path / "trace.json.gz", small_step())
    variables = run(first_block(README), tmp_path, monkeypatch)
    assert "ncclDevKernel_Generic" in capsys.readouterr().out
    assert plots.describe(plots.top_kernels(tidyprof.kernels(variables["profile"])))


# Pages of the readers


def examples() -> dict[str, doctest.DocTest]:
    """The examples in the docstrings of what tidyprof offers, and of its gate, by name."""
    offered = {name: getattr(tidyprof, name) for name in tidyprof.__all__} | {"judge": judge}
    finder = doctest.DocTestFinder(recurse=False)
    tests = [
        test
        for name, one in offered.items()
        for test in finder.find(one, name, globs={"tidyprof": tidyprof})
    ]
    return {test.name: test for test in tests if test.examples}


EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_gives_what_it_says(name, tmp_path, monkeypatch):
    torch_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    EXAMPLES[name].globs["judge"] = judge
    done = doctest.DocTestRunner().run(EXAMPLES[name], out=told.append)
    assert done.attempted
    assert not done.failed, "".join(told)


def torch_files(folder: Path) -> None:
    launches = [
        call("hipLaunchKernel", 1_022_000, 5_000, 14),
        call("hipMemset", 1_044_000, 900, 13),
    ]
    write_trace(folder / "trace.json.gz", [*small_step(), *launches])
    (folder / "traces").mkdir()
    for rank in (0, 1):
        write_trace(folder / "traces" / f"rank{rank}.json", small_step())


def rocprofv3_files(folder: Path) -> None:
    process = folder / "out" / "node7"
    rocprofv3_writer.write_small_run(process, "908")
    (process / "908_kernel_stats.csv").write_text(rocprofv3_writer.STATISTICS)


def rocpd_files(folder: Path) -> None:
    (folder / "out" / "node17").mkdir(parents=True)
    rocpd_writer.small_database(folder / "out" / "node17" / "4242_results.db")


def rocprof_v1_files(folder: Path) -> None:
    (folder / "HIP_trace").mkdir()
    (folder / "HIP_trace" / "results.csv").write_text(KERNEL_TABLE)
    (folder / "HIP_trace" / "results.hip_stats.csv").write_text(HIP_STATISTICS)


def perfetto_files(folder: Path) -> None:
    (folder / "out").mkdir()
    for name in ("out/4242_results.pftrace", "perfetto-trace-7.proto"):
        perfetto_writer.write_trace(folder / name, perfetto_writer.small_trace())


def rocprof_sys_files(folder: Path) -> None:
    process = folder / "rocprofsys-python3-output" / "2025-08-09_14.03"
    process.mkdir(parents=True)
    perfetto_writer.write_trace(process / "perfetto-trace-100.proto", perfetto_writer.small_trace())
    (process / "sampling_wall_clock-100.json").write_text(
        document("sampling_wall_clock", TREE, pid=100)
    )


def compute_files(folder: Path) -> None:
    rows = compute_writer.wide_rows(compute_writer.two_kernels())
    compute_writer.write_folder(folder / "workloads" / "vcopy" / "MI300X_A1", rows)


def system_files(folder: Path) -> None:
    rows = [f"{1_754_593_103 + second},{gpu},{200 + gpu}" for second in (0, 5) for gpu in (0, 1)]
    (folder / "power.csv").write_text("\n".join(["timestamp,gpu,power (W)", *rows, ""]))


KERNEL_TABLE = """\
Index,KernelName,gpu-id,queue-id,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,DispatchNs,BeginNs,EndNs
0,"gemm(float*)",2,0,41,41,1024,256,512,0,32,4,48,900,1000,2000
"""
HIP_STATISTICS = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage"
"hipMalloc",1,500,500,100.0
"""
PAGES = {
    "torch_trace": torch_files,
    "rocprofv3": rocprofv3_files,
    "rocpd": rocpd_files,
    "rocprof_v1": rocprof_v1_files,
    "perfetto": perfetto_files,
    "rocprof_sys": rocprof_sys_files,
    "rocprof_compute": compute_files,
    "rpd": lambda folder: rpd_writer.small_file(folder / "trace.rpd"),
    "system": system_files,
    "memory_snapshot": lambda folder: snapshot_writer.write(
        folder / "dump_snapshot.pickle", snapshot_writer.small_snapshot()
    ),
}
"""What writes a small recording for the example of a page."""


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_every_reader_has_a_page():
    assert (
        set(PAGES)
        == set(DOORS.values())
        == {path.stem for path in FOLDER.glob("*.md")} - {"README", "isa"}
    )


@pytest.mark.parametrize("name", PAGES)
class TestPages:
    def test_the_example_runs(self, name, tmp_path, monkeypatch, capsys):
        PAGES[name](tmp_path)
        assert run(first_block(page(name)), tmp_path, monkeypatch)["profile"]


# Further examples of the README


def example(text: str) -> str:
    """The example of the README that holds this text."""
    (code,) = [
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if text in block
    ]
    return code


def test_the_example_of_call_stacks(recordings, tmp_path, monkeypatch, capsys):
    profile = tidyprof.read(recordings / "rocprof-sys-cpu/rocprofsys-python-output")
    variables = run(
        example("call_stacks"), tmp_path, monkeypatch, tidyprof=tidyprof, profile=profile
    )
    assert "invoke_parallel" in capsys.readouterr().out
    assert (variables["table"]["depth"] == 0).sum() == 1


def test_no_public_name_is_that_of_a_module():
    """Python replaces such a name by the module, as soon as anything imports that."""
    modules = {path.stem for path in (HOUSE / "src/tidyprof").iterdir()}
    assert modules.isdisjoint(tidyprof.__all__)
