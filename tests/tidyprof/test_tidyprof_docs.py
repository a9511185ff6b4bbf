"""The overview in docs/tidyprof says what the code does: columns, doors, commands, and an example that runs."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.conftest import REPOSITORY
from tidyprof import plots
from tidyprof.analyses.budget import DEVICE_BUDGET_COLUMNS
from tidyprof.analyses.busy import BUSY_COLUMNS, UTILISATION_COLUMNS
from tidyprof.analyses.collectives import COLLECTIVE_COLUMNS, COLLECTIVE_RANK_COLUMNS
from tidyprof.analyses.common import PLACE
from tidyprof.analyses.comparison import COMPARISON_COLUMNS
from tidyprof.analyses.device_time import OVERLAP_COLUMNS
from tidyprof.analyses.gaps import GAP_COLUMNS
from tidyprof.analyses.kernels import KERNEL_COLUMNS
from tidyprof.analyses.launches import LAUNCH_COLUMNS
from tidyprof.analyses.operators import OPERATOR_COLUMNS
from tidyprof.analyses.ranks import RANK_COLUMNS
from tidyprof.analyses.reconcile import RECONCILIATION_COLUMNS
from tidyprof.analyses.steps import PHASE_COLUMNS, STEP_COLUMNS
from tidyprof.cli import build_parser
from tidyprof.profile import COUNTER_DTYPES, EVENT_DTYPES, KINDS

from .chrome_writer import small_step, write_trace

README = (REPOSITORY / "docs" / "tidyprof" / "README.md").read_text(encoding="utf-8")


COLUMNS = {
    "kernels": KERNEL_COLUMNS,
    "busy": BUSY_COLUMNS,
    "utilisation": UTILISATION_COLUMNS,
    "overlap": OVERLAP_COLUMNS,
    "steps": STEP_COLUMNS,
    "phases": PHASE_COLUMNS,
    "step_budget": DEVICE_BUDGET_COLUMNS,
    "gaps": GAP_COLUMNS,
    "launches": LAUNCH_COLUMNS,
    "operators": OPERATOR_COLUMNS,
    "compare": COMPARISON_COLUMNS,
    "reconcile": RECONCILIATION_COLUMNS,
    "ranks": RANK_COLUMNS,
    "collectives": COLLECTIVE_COLUMNS,
    "collectives(..., per_rank=True)": COLLECTIVE_RANK_COLUMNS,
}
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


@pytest.mark.parametrize("dtypes", [EVENT_DTYPES, COUNTER_DTYPES], ids=["events", "counters"])
def test_the_contract(dtypes):
    table = {row[0].strip("`"): row[1] for row in rows() if len(row) == 4}
    assert {name: table[name] for name in dtypes} == dtypes
    for kind in KINDS:
        assert f"`{kind}`" in README


@pytest.mark.parametrize("door", DOORS)
def test_doors(door):
    assert [row for row in rows() if row[0] == f"`{door}`"]
    assert callable(getattr(import_module(f"tidyprof.{DOORS[door]}"), door))


def test_commands():
    (commands,) = [action for action in build_parser()._actions if action.dest == "command"]
    assert set(re.findall(r"^python -m tidyprof (\w+)", README, re.MULTILINE)) == set(commands.choices)


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    write_trace(tmp_path / "trace.json.gz", small_step())
    monkeypatch.chdir(tmp_path)
    (code, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    variables: dict = {}
    exec(code, variables)
    assert "ncclDevKernel_Generic" in capsys.readouterr().out
    assert plots.describe(variables["tidyprof"].plots.top_kernels(variables["tidyprof"].kernels(variables["profile"])))
