"""The stand-ins that read or write databases: rocpd, runTracer.sh, rpd2tracing."""

from __future__ import annotations

import csv
import re
import sqlite3
from pathlib import Path

import pytest

import tidyprof
from tests.proflab import played_runs
from tests.proflab.played_runs import run


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder of its own, the made-up player, and no variables of a launcher."""
    return played_runs.stage(tmp_path, monkeypatch)


@pytest.fixture
def database(here, capsys):
    """The first of two ranks' databases, as rocprofv3's stand-in writes them."""
    assert (
        run("rocprofv3 --runtime-trace -d out -o rank%rank% -- mpirun -n 2 cifar-train --roctx")
        == 0
    )
    capsys.readouterr()
    return "out/rank0_results.db"


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as source:
        return list(csv.DictReader(source))


def test_a_query_is_shown(database, capsys):
    assert (
        run(
            f"rocpd query -i {database} --query 'SELECT COUNT(*) AS n, COUNT(DISTINCT guid) AS g"
            " FROM kernels'"
        )
        == 0
    )
    # Three steps of six kernels.
    assert capsys.readouterr().out.split() == ["n", "g", "18", "1"]


def test_a_summary_adds_up_and_agrees_with_tidyprof(database):
    assert run(f"rocpd summary -i {database} -f csv -d s") == 0
    kernels = rows("s/kernels_summary.csv")
    table = tidyprof.kernels(
        tidyprof.read_rocpd(database), include=("kernel", "collective", "copy", "fill")
    )
    # rocpd counts copies and fills that are kernels; copies between host and device have a table of
    # their own.
    table = table[~table["name"].str.contains("HOST")].set_index("name")
    assert {row["Name"]: int(row["DURATION (nsec)"]) for row in kernels} == table[
        "total_ns"
    ].to_dict()
    assert sum(float(row["PERCENT (INC)"]) for row in kernels) == pytest.approx(100)
    assert {row["Name"] for row in rows("s/markers_summary.csv")} >= {
        "data",
        "forward",
        "backward",
        "optimizer",
    }


def test_a_summary_of_some_kinds_of_calls(database, capsys):
    assert run(f"rocpd summary -i {database} --region-categories none") == 0
    assert re.findall(r"^(\w+)_SUMMARY:$", capsys.readouterr().out, re.MULTILINE) == [
        "KERNELS",
        "MEMORY_COPIES",
    ]


def test_a_query_into_a_file(database, capsys):
    query = (
        "SELECT name, SUM(duration) AS total FROM kernels GROUP BY name ORDER BY total DESC LIMIT 1"
    )
    assert (
        run(f'rocpd query -i out/rank0_results.db --query "{query}" --format csv -d q -o top') == 0
    )
    assert rows("q/top_query.csv") == [
        {"name": "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "total": "330081"}
    ]


def test_a_query_without_rows_says_so_and_writes_nothing(database, capsys, here):
    assert (
        run(f"rocpd query -i {database} --query 'SELECT * FROM kernels WHERE 0' --format csv") == 0
    )
    assert "no rows" in capsys.readouterr().out
    assert not (here / "rocpd-output-data").exists()


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("rocpd convert -i out/rank0_results.db", 2, "required: -f/--output-format"),
        ("rocpd convert -i out/rank0_results.db -f csv", 2, "convert is not modelled here"),
        ("rocpd query -i out/rank0_results.db", 2, "required: --query"),
        ("rocpd query --query x", 2, "required: -i/--input"),
        (
            "rocpd query -i out/rank0_results.db --query 'SELECT x FROM y'",
            2,
            "SQL: no such table: y",
        ),
        ("rocpd query -i missing.db --query x", 2, "missing.db: no such file"),
        ("rocpd query -i text.db --query x", 2, "file is not a database"),
        ("rocpd query -i other.db --query x", 2, "no view `kernels`"),
        ("rocpd query -i a.db b.db --query x", 2, "several databases as one are not modelled"),
        ("rocpd summary -i out/rank0_results.db --start 30%", 2, "--start is not modelled"),
        ("rocpd summary -i out/rank0_results.db -f html", 2, "format html is not modelled"),
    ],
)
def test_what_rocpd_refuses(database, capsys, text, code, said):
    Path("text.db").write_text("no database at all" * 10)
    sqlite3.connect("other.db").execute("CREATE TABLE t (a)").connection.close()
    assert run(text) == code
    assert said in capsys.readouterr().err


def test_a_database_is_never_changed_by_reading(database):
    before = Path("out/rank0_results.db").read_bytes()
    assert run("rocpd query -i out/rank0_results.db --query 'DROP VIEW kernels'") == 2
    assert Path("out/rank0_results.db").read_bytes() == before


def test_rpd_of_a_launcher_holds_all_ranks_in_one_file(here, capsys):
    assert run("runTracer.sh -o all.rpd mpirun -n 2 cifar-train") == 0
    assert (
        "runTracer.sh: stand-in, nothing was measured: modelled MI300X" in capsys.readouterr().err
    )
    profile = tidyprof.read_rpd("all.rpd")
    assert profile.events["process"].dropna().nunique() == 2
    assert tidyprof.kernels(profile)["calls"].sum() == 2 * 3 * 4


def test_rpd_has_a_default_name_and_replaces_the_file(here):
    Path("trace.rpd").write_text("old")
    assert run("runTracer.sh python3 -m cifar_train") == 0
    database = sqlite3.connect("trace.rpd")
    assert database.execute(
        "SELECT value FROM rocpd_metadata WHERE tag = 'schema_version'"
    ).fetchone() == ("3",)
    columns = [row[1] for row in database.execute("PRAGMA table_info(top)")]
    database.close()
    assert columns == ["Name", "TotalCalls", "TotalDuration_us", "Ave_us", "Percentage"]


def test_inside_srun_rpd_writes_one_rank(here, monkeypatch):
    step = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_NNODES": "1",
    }
    for name, value in {**step, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run("runTracer.sh -o rank1.rpd python3 -m cifar_train") == 0
    assert set(tidyprof.read_rpd("rank1.rpd").events["process"].dropna()) == {4210}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runTracer.sh -o", "expected one argument"),
        ("runTracer.sh python3 train.py", "is not the course's workload"),
        ("runTracer.sh -o missing.rpd", "no program to trace"),
        ("rpd2tracing missing.rpd", "missing.rpd"),
        ("rpd2tracing a.rpd a.txt", "ends in .json or .json.gz"),
        ("rpd2tracing a.rpd --end 50%", "--end is not modelled"),
    ],
)
def test_what_the_rpd_tools_refuse(here, capsys, text, said):
    assert run(text) == 2
    assert said in capsys.readouterr().err


def test_an_rpd_file_becomes_a_trace(here):
    assert run("runTracer.sh -o a.rpd cifar-train") == 0
    assert run("rpd2tracing a.rpd") == 0
    assert len(tidyprof.read_torch_trace("a.json").events) == len(tidyprof.read_rpd("a.rpd").events)
