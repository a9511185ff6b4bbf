"""The stand-ins that read or write databases: rocpd, runTracer.sh, rpd2tracing."""

from __future__ import annotations

import csv
import json
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
def databases(here, capsys):
    """Two ranks' databases, as rocprofv3's stand-in writes them."""
    assert run("rocprofv3 --runtime-trace -d out -o rank%rank% -- mpirun -n 2 cifar-train --roctx") == 0
    capsys.readouterr()
    return "out/rank0_results.db out/rank1_results.db"


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as source:
        return list(csv.DictReader(source))


def test_a_query_sees_all_databases_as_one(databases, capsys):
    assert (
        run(f"rocpd query -i {databases} --query 'SELECT COUNT(*) AS n, COUNT(DISTINCT guid) AS g FROM kernels'") == 0
    )
    # Three steps of six kernels on each of two ranks.
    assert capsys.readouterr().out.split() == ["n", "g", "36", "2"]


def test_a_query_into_a_file(databases, capsys):
    query = "SELECT name, SUM(duration) AS total FROM kernels GROUP BY name ORDER BY total DESC LIMIT 1"
    assert run(f'rocpd query -i out/rank0_results.db --query "{query}" --format csv -d q -o top') == 0
    assert rows("q/top_query.csv") == [
        {"name": "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "total": "330081"}
    ]


def test_a_query_without_rows_says_so_and_writes_nothing(databases, capsys, here):
    assert run(f"rocpd query -i {databases} --query 'SELECT * FROM kernels WHERE 0' --format csv") == 0
    assert "no rows" in capsys.readouterr().out
    assert not (here / "rocpd-output-data").exists()


def test_a_summary_adds_up_and_agrees_with_tidyprof(databases):
    assert run(f"rocpd summary -i {databases} -f csv -d s --summary-by-rank --domain-summary") == 0
    kernels = rows("s/kernels_summary.csv")
    table = tidyprof.kernels(
        tidyprof.read_rocpd("out/rank0_results.db"), include=("kernel", "collective", "copy", "fill")
    )
    # rocpd counts copies and fills that are kernels; copies between host and device have a table of their own.
    table = table[~table["name"].str.contains("HOST")].set_index("name")
    assert {row["Name"]: int(row["DURATION (nsec)"]) for row in kernels} == (2 * table["total_ns"]).to_dict()
    assert sum(float(row["PERCENT (INC)"]) for row in kernels) == pytest.approx(100)
    by_rank = rows("s/kernels_summary_by_rank.csv")
    assert {row["ProcessID"] for row in by_rank} <= {"4200", "4210"}
    assert len(by_rank) == 2 * len(kernels)
    assert {row["Name"] for row in rows("s/markers_summary.csv")} == {
        "data",
        "forward",
        "loss",
        "backward",
        "optimizer",
    }
    domains = {row["Name"]: int(row["Calls"]) for row in rows("s/domain_summary.csv")}
    assert (domains["KERNEL_DISPATCH"], domains["MEMORY_COPY"]) == (36, 8)


def test_a_window_in_percent_leaves_out_what_lies_outside(databases):
    query = "rocpd summary -i out/rank0_results.db -f csv --region-categories NONE"
    assert run(f"{query} -d whole --start 0% --end 100%") == 0
    assert run(f"{query} -d half --end 50%") == 0
    calls = [sum(int(row["Calls"]) for row in rows(f"{name}/kernels_summary.csv")) for name in ("whole", "half")]
    assert calls[0] == 18
    assert 0 < calls[1] < 18
    assert not Path("whole/hip_summary.csv").exists()


def test_converted_tables_have_the_guid_in_front_and_no_statistics(databases):
    assert run(f"rocpd convert -i {databases} -f csv -d merged -o four") == 0
    table = rows("merged/four_kernel_trace.csv")
    assert list(table[0])[:3] == ["Guid", "Kind", "Agent_Id"]
    assert len(table) == 36
    assert {row["Agent_Id"] for row in table} == {"Agent 2", "Agent 3"}
    assert {row["Function"] for row in rows("merged/four_marker_api_trace.csv")} >= {"forward", "backward"}
    assert not list(Path("merged").glob("*stats*"))


def test_agents_can_be_numbered_by_type(databases):
    assert run("rocpd convert -i out/rank1_results.db -f csv --agent-index-value type-relative") == 0
    assert {row["Agent_Id"] for row in rows("rocpd-output-data/out_kernel_trace.csv")} == {"GPU 1"}


def test_ranks_merge_into_one_trace_that_tidyprof_reads(databases, capsys):
    assert run(f"rocpd convert -i {databases} -f pftrace -d merged -o four") == 0
    assert "Chrome's JSON form" in capsys.readouterr().err
    profile = tidyprof.read("merged/four_results.pftrace")
    assert (profile.events["name"].astype(str) == "Cijk_Ailk_Bljk_SB_MT64x64x32_MI16x16x4x1_SN").sum() == 6


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("rocpd convert -i out/rank0_results.db", 2, "required: -f/--output-format"),
        ("rocpd query -i out/rank0_results.db", 2, "required: --query"),
        ("rocpd query --query x", 2, "required: -i/--input"),
        ("rocpd query -i out/rank0_results.db --query 'SELECT x FROM y'", 2, "SQL: no such table: y"),
        ("rocpd query -i missing.db --query x", 2, "missing.db: no such file"),
        ("rocpd query -i text.db --query x", 2, "file is not a database"),
        ("rocpd query -i other.db --query x", 2, "no view `kernels`"),
        ("rocpd convert -i out/rank0_results.db -f otf2", 2, "otf2 is not modelled"),
        ("rocpd summary -i out/rank0_results.db --start-marker forward", 2, "need a view `markers`"),
        ("rocpd summary -i out/rank0_results.db --start soon", 2, "not at 'soon'"),
    ],
)
def test_what_rocpd_refuses(databases, capsys, text, code, said):
    Path("text.db").write_text("no database at all" * 10)
    sqlite3.connect("other.db").execute("CREATE TABLE t (a)").connection.close()
    assert run(text) == code
    assert said in capsys.readouterr().err


def test_a_database_is_never_changed_by_reading(databases):
    before = Path("out/rank0_results.db").read_bytes()
    assert run("rocpd query -i out/rank0_results.db --query 'DROP VIEW kernels'") == 2
    assert Path("out/rank0_results.db").read_bytes() == before


def test_rpd_of_a_launcher_holds_all_ranks_in_one_file(here, capsys):
    assert run("runTracer.sh -o all.rpd mpirun -n 2 cifar-train") == 0
    assert "runTracer.sh: stand-in, nothing was measured: modelled MI300X" in capsys.readouterr().err
    profile = tidyprof.read_rpd("all.rpd")
    assert profile.events["process"].dropna().nunique() == 2
    assert tidyprof.kernels(profile)["calls"].sum() == 2 * 3 * 4


def test_rpd_has_a_default_name_and_replaces_the_file(here):
    Path("trace.rpd").write_text("old")
    assert run("runTracer.sh python3 -m cifar_train") == 0
    database = sqlite3.connect("trace.rpd")
    assert database.execute("SELECT value FROM rocpd_metadata WHERE tag = 'schema_version'").fetchone() == ("3",)
    columns = [row[1] for row in database.execute("PRAGMA table_info(top)")]
    database.close()
    assert columns == ["Name", "TotalCalls", "TotalDuration_us", "Ave_us", "Percentage"]


def test_inside_srun_rpd_writes_one_rank(here, monkeypatch):
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NNODES": "1"}
    for name, value in {**step, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run("runTracer.sh -o rank1.rpd python3 -m cifar_train") == 0
    assert set(tidyprof.read_rpd("rank1.rpd").events["process"].dropna()) == {4210}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runTracer.sh", "no program to trace"),
        ("runTracer.sh -o", "-o needs a file name"),
        ("runTracer.sh python3 train.py", "is not the course's workload"),
        ("runTracer.sh -o missing.rpd", "no program to trace"),
        ("rpd2tracing missing.rpd", "missing.rpd"),
        ("rpd2tracing a.rpd a.txt", "ends in .json or .json.gz"),
    ],
)
def test_what_the_rpd_tools_refuse(here, capsys, text, said):
    assert run(text) == 2
    assert said in capsys.readouterr().err


def test_an_rpd_file_becomes_a_trace_whole_and_cut(here):
    assert run("runTracer.sh -o a.rpd cifar-train") == 0
    assert run("rpd2tracing a.rpd") == 0
    assert run("rpd2tracing a.rpd cut.json --end 50%") == 0
    assert run("rpd2tracing a.rpd list.json.gz --format array") == 0
    counts = [len(tidyprof.read_torch_trace(name).events) for name in ("a.json", "cut.json")]
    assert 0 < counts[1] < counts[0]
    assert isinstance(json.loads(Path("a.json").read_text()), dict)
    import gzip

    with gzip.open("list.json.gz", "rt") as source:
        assert isinstance(json.load(source), list)
