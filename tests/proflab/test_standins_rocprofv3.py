"""The stand-in for rocprofv3: options, file names, domains, ranks and workloads."""

from __future__ import annotations

import csv
import re
import sqlite3
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from proflab.standins.output_files import Process, expand
from tests.proflab import played_runs

ALL_KERNELS = ("kernel", "collective", "copy", "fill")
"""Kinds in tidyprof of what rocprofv3 lists as kernels: HIP copies and fills within a device with
some.
"""

TRAINER = "-- python -m cifar_train --max-steps 3"

NINE = (
    "SQ_WAVES SQ_ITEMS SQ_INSTS SQ_INSTS_VALU SQ_INSTS_SALU SQ_INSTS_SMEM SQ_INSTS_FLAT"
    " SQ_INSTS_VMEM SQ_CYCLES"
)
"""More counters than one part of the hardware has registers for."""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder of its own, the made-up player, and no variables of a launcher."""
    return played_runs.stage(tmp_path, monkeypatch)


def run(text: str) -> int:
    return played_runs.run(f"rocprofv3 {text}")


def is_memory_copy(profile):
    """Copies by a copy engine, whatever a format calls them."""
    return profile.events["name"].astype(str).str.contains("HOST")


def files(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "modelled" not in path.name
    )


def test_the_default_is_one_database_per_process_in_a_folder_of_the_host(here, capsys):
    assert run(f"--kernel-trace -d out {TRAINER}") == 0
    assert files(here) == ["out/modelled-node/4200_results.db"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "rocprofv3: stand-in, nothing was measured: modelled MI300X, kernel time within 20 %"
        " of published",
        "  measurements",
    ]
    assert "Opened result file: out/modelled-node/4200_results.db" in lines


def test_without_folder_and_name_files_go_below_the_current_folder(here):
    assert run(f"--kernel-trace {TRAINER}") == 0
    assert files(here) == ["modelled-node/4200_results.db"]


def test_amds_command_gives_the_kernel_table_that_tidyprof_reads(here):
    options = (
        "--stats --kernel-trace --output-format csv --output-directory single --output-file kernels"
    )
    assert run(f"{options} {TRAINER}") == 0
    assert files(here) == [
        "single/kernels_agent_info.csv",
        "single/kernels_domain_stats.csv",
        "single/kernels_kernel_stats.csv",
        "single/kernels_kernel_trace.csv",
    ]
    with Path("single/kernels_kernel_stats.csv").open() as source:
        rows = list(csv.DictReader(source))
    # Each of three steps has 3 kernels, a collective, and a copy and a fill that HIP does with
    # kernels.
    assert sum(int(row["Calls"]) for row in rows) == 3 * 6
    gemm = next(row for row in rows if row["Name"].startswith("Cijk_"))
    assert (gemm["Calls"], gemm["TotalDurationNs"]) == ("3", str(3 * 20_001))
    table = tidyprof.kernels(tidyprof.read_rocprofv3(Path("single")), include=ALL_KERNELS)
    assert table["calls"].sum() == 3 * 6


def test_without_stats_there_are_no_statistics(here):
    assert run(f"--kernel-trace -f csv -d out -o k {TRAINER}") == 0
    assert not [name for name in files(here) if "stats" in name]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--kernel-trace", {"kernel_trace"}),
        ("--memory-copy-trace", {"memory_copy_trace"}),
        ("--hip-trace", {"hip_api_trace"}),
        (
            "--runtime-trace",
            {"kernel_trace", "memory_copy_trace", "hip_api_trace", "rccl_api_trace"},
        ),
        (
            "--sys-trace --hip-runtime-trace=no",
            {"kernel_trace", "memory_copy_trace", "rccl_api_trace"},
        ),
    ],
)
def test_only_the_domains_that_were_asked_for_are_written(here, options, expected):
    assert run(f"{options} -f csv -d out -o x {TRAINER}") == 0
    written = {name.removeprefix("out/x_").removesuffix(".csv") for name in files(here)}
    assert written == expected | {"agent_info"}


def test_markers_come_only_from_a_trainer_that_sets_them(here):
    assert run(f"--marker-trace -f csv -d out -o x {TRAINER}") == 0
    assert files(here) == []
    assert run(f"--marker-trace -f csv -d out -o x {TRAINER} --roctx") == 0
    assert "out/x_marker_api_trace.csv" in files(here)


def test_several_formats_agree_on_the_kernels(here):
    assert (
        run(f"--kernel-trace --memory-copy-trace -f CSV json pftrace rocpd -d out -o x {TRAINER}")
        == 0
    )
    assert {"out/x_results.db", "out/x_results.json", "out/x_results.pftrace"} <= set(files(here))
    database = sqlite3.connect("out/x_results.db")
    (total,) = database.execute("SELECT SUM(duration) FROM kernels").fetchone()
    database.close()
    for profile in (
        tidyprof.read_rocprofv3(Path("out/x_results.json")),
        tidyprof.read_rocprofv3(Path("out/x_kernel_trace.csv")),
        tidyprof.read_perfetto(Path("out/x_results.pftrace")),
    ):
        events = profile.events[profile.events["kind"].isin(ALL_KERNELS) & ~is_memory_copy(profile)]
        assert events["duration_ns"].sum() == total


def test_a_perfetto_trace_of_kernels_has_no_copies_and_no_calls(here):
    assert run(f"--kernel-trace -f pftrace -d out -o x {TRAINER}") == 0
    events = tidyprof.read_perfetto(Path("out/x_results.pftrace")).events
    assert len(events) == 3 * 6
    assert not events["name"].astype(str).str.contains("MEMORY_COPY|hip[A-Z]").any()


def test_short_names_are_short_in_every_format(here):
    assert run(f"--kernel-trace -T -f csv json pftrace rocpd -d out -o x {TRAINER}") == 0
    for file in ("x_kernel_trace.csv", "x_results.json", "x_results.pftrace", "x_results.db"):
        names = set(tidyprof.read(Path("out") / file).events["name"].astype(str))
        assert "vectorized_elementwise_kernel" in names, file


def test_a_launcher_behind_the_tool_gives_one_set_per_rank(here):
    assert run("--kernel-trace -d out -- torchrun --nproc-per-node 3 -m cifar_train") == 0
    assert files(here) == [f"out/modelled-node/{pid}_results.db" for pid in (4200, 4210, 4220)]


def test_a_fixed_name_is_overwritten_by_the_last_rank_as_with_the_tool(here):
    assert run("--kernel-trace -d out -o same -- mpirun -n 2 python -m cifar_train") == 0
    assert files(here) == ["out/same_results.db"]
    database = sqlite3.connect("out/same_results.db")
    assert database.execute("SELECT pid FROM rocpd_info_process").fetchone() == (4210,)
    database.close()


def test_the_rank_is_in_the_name_under_mpirun_and_not_under_torchrun(here):
    assert run("--kernel-trace -d mpi -o rank%rank%_%pid% -- mpirun -n 2 cifar-train") == 0
    assert (
        run(
            "--kernel-trace -d elastic -o rank%rank%_%pid% -- torchrun --nproc-per-node 2 -m"
            " cifar_train"
        )
        == 0
    )
    assert files(here / "mpi") == ["rank0_4200_results.db", "rank1_4210_results.db"]
    assert files(here / "elastic") == ["rank0_4200_results.db", "rank0_4210_results.db"]


def test_inside_srun_each_process_writes_its_own_rank(here, monkeypatch, capsys):
    step = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_NNODES": "1",
    }
    for name, value in {**step, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run(f"--kernel-trace -d slurm -o job%job%_rank%rank%_%pid% {TRAINER}") == 0
    assert files(here) == ["slurm/job7_rank1_4210_results.db"]
    assert "images/s" not in capsys.readouterr().out  # rank 0 alone prints the result


VARIABLES = "--mpi-world-rank-variable RANK --mpi-world-size-variable WORLD_SIZE"


@pytest.mark.parametrize(
    ("options", "launcher", "pids"),
    [
        ("", "mpirun -n 4 cifar-train", (4210, 4220)),
        ("", "torchrun --nproc-per-node 4 -m cifar_train", (4200, 4210, 4220, 4230)),
        (VARIABLES, "torchrun --nproc-per-node 4 -m cifar_train", (4210, 4220)),
    ],
)
def test_ranks_are_left_out_where_the_launcher_states_them(
    here, options, launcher, pids, monkeypatch
):
    """rocprofv3 knows no variable of torchrun unless it is named."""
    monkeypatch.setenv("PROFLAB_ROCM", "7.13")
    assert run(f"--kernel-trace --profile-mpi-ranks 1-2 {options} -d out -- {launcher}") == 0
    assert files(here) == [f"out/modelled-node/{pid}_results.db" for pid in pids]


def test_one_variable_of_two_is_fatal(here, capsys, monkeypatch):
    monkeypatch.setenv("PROFLAB_ROCM", "7.13")
    assert run(f"--kernel-trace --mpi-world-rank-variable RANK {TRAINER}") == 1
    assert (
        "both --mpi-world-rank-variable and --mpi-world-size-variable must be specified"
        in capsys.readouterr().err
    )


def test_the_trainers_lines_come_from_the_modelled_rates(here, capsys):
    assert run(f"--kernel-trace {TRAINER} --batch-size 8") == 0
    out = capsys.readouterr().out
    assert "resnet, automixed (float16), batch 8, AMD Instinct MI300X (modelled)" in out
    # One of three steps is warm-up; 8 images at 2000 and 4000 a second: 4 and 2 ms, 16 images in 6
    # ms.
    assert "steps          3 (1 warm-up, reported apart)" in out
    assert "first step     8.0 ms" in out
    assert "step           3.0 ms median" in out
    assert "images/s       2666.7" in out
    assert "loss           not modelled" in out


def test_the_matrix_product_is_played_too(here, capsys):
    assert (
        run(
            "--runtime-trace -d out -- python -m cifar_train.matmul --x-shape 1000 200 --w-shape"
            " 200 50"
        )
        == 0
    )
    assert "0.02 GFLOP on AMD Instinct MI300X (modelled)" in capsys.readouterr().out


def test_all_formats_agree_on_a_matrix_product_that_the_model_itself_plays(here, monkeypatch):
    monkeypatch.delitem(sys.modules, "gpumodel.simulation")
    formats = "-f csv json pftrace rocpd -d out -o x --kernel-trace --memory-copy-trace"
    assert (
        run(f"{formats} -- python3 -m cifar_train.matmul --x-shape 500 100 --w-shape 100 80") == 0
    )
    totals = []
    for file in ("x_kernel_trace.csv", "x_results.json", "x_results.pftrace", "x_results.db"):
        profile = tidyprof.read(Path("out") / file)
        kernels = tidyprof.kernels(profile, include=("kernel",))
        assert len(kernels) == 1, file
        totals.append(int(kernels["total_ns"].iloc[0]))
    assert len(set(totals)) == 1


def test_a_summary_adds_up(here, capsys):
    assert run(f"--kernel-trace -S -u usec {TRAINER}") == 0
    rows = [
        line.split("|")
        for line in capsys.readouterr().err.splitlines()
        if "KERNEL_DISPATCH" in line
    ]
    assert len(rows) == 6
    assert sum(float(row[6]) for row in rows) == pytest.approx(100, abs=1e-4)
    gemm = next(row for row in rows if "Cijk_" in row[1])
    assert (gemm[3].strip(), float(gemm[4])) == ("3", 60.003)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            f"--stats {TRAINER}",
            1,
            "Fatal error: No tracing options were enabled for --stats option.",
        ),
        ("--kernel-trace", 1, "Fatal error: No application provided"),
        ("--kernel-trace python -m cifar_train", 2, "invalid truth value python"),
        (f"--kernel-trase {TRAINER}", 2, "unrecognized arguments: --kernel-trase"),
        (f"--kernel-trace -f xml {TRAINER}", 2, "invalid choice: 'xml'"),
        (f"--kernel-trace=maybe {TRAINER}", 2, "invalid truth value maybe"),
        ("--kernel-trace -- ls", 2, "'ls' is not the course's workload"),
        ("--kernel-trace -- cifar-train --model alexnet", 2, "invalid choice: 'alexnet'"),
        (f"--kernel-trace -f otf2 {TRAINER}", 2, "otf2 is not modelled"),
        (
            f"--pmc SQ_WAVES {TRAINER}",
            2,
            "--pmc is not modelled in the format rocpd; say --output-format csv",
        ),
        (f"--pmc SQ_WAVES TCP_HIT -f csv {TRAINER}", 2, "--pmc TCP_HIT: not modelled on MI300X"),
        (
            f"--pmc {NINE} -f csv {TRAINER}",
            2,
            "--pmc with 9 counters: more than the hardware counts in one pass",
        ),
        (
            f"--pmc SQ_WAVES -f csv --kernel-include-regex ( {TRAINER}",
            2,
            "'(' is no regular expression",
        ),
        (
            f"--pmc SQ_WAVES -f csv --kernel-iteration-range 1 {TRAINER}",
            2,
            "--kernel-iteration-range is not modelled",
        ),
        (f"--kernel-trace --pid 7 {TRAINER}", 2, "--pid is not modelled here"),
        (f"--att --kernel-trace {TRAINER}", 1, "rocprof-trace-decoder library path not found"),
        (f"--kernel-trace --pc-sampling-unit time {TRAINER}", 1, "PC sampling unavailable"),
        (
            f"--kernel-trace -P 1:2:1 {TRAINER}",
            2,
            "-P is not modelled here; on a machine with ROCm the real tool does",
        ),
        (f"-i jobs.json {TRAINER}", 2, "-i is not modelled here"),
        (
            f"--kernel-trace --selected-regions {TRAINER}",
            2,
            "--selected-regions is not modelled here",
        ),
        (f"--kernel-trace --kfd-trace {TRAINER}", 2, "unrecognized arguments: --kfd-trace"),
    ],
)
def test_what_the_tool_refuses_is_refused_with_its_exit_code(here, capsys, text, code, said):
    assert run(text) == code
    assert said in capsys.readouterr().err
    assert files(here) == []


def test_no_traces_at_all_is_a_warning_and_no_file(here, capsys):
    assert run(f"-d out {TRAINER}") == 0
    assert "Warning: No tracing options were enabled." in capsys.readouterr().err
    assert files(here) == []


def test_no_arguments_show_the_help(here, capsys):
    assert run("") == 0
    assert "usage: rocprofv3 [options] -- <application>" in capsys.readouterr().out


def test_an_unwritable_folder_is_reported_in_one_line(here, capsys):
    Path("out").write_text("a file")
    assert run(f"--kernel-trace -d out {TRAINER}") == 2
    assert "cannot be written" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PROFLAB_DEVICE", "H100X", "device 'H100X' is not modelled"),
        ("PROFLAB_SEED", "-1", "must be a whole number"),
    ],
)
def test_wrong_knobs_are_refused(here, monkeypatch, capsys, name, value, said):
    monkeypatch.setenv(name, value)
    assert run(f"--kernel-trace {TRAINER}") == 2
    assert said in capsys.readouterr().err


def test_placeholders_stand_for_what_the_sdk_says():
    environment = {
        "SLURM_PROCID": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "SLURM_JOB_ID": "9",
        "MY_NAME": "a b/c",
    }
    process = Process("node1", 77, ("python3", "-m", "cifar_train"), environment)
    assert expand("%hostname%/%h%-%pid%-%p%", process) == "node1/node1-77-77"
    assert expand("r%rank%s%size%j%job%n%nid%", process) == "r3s4j9n3"
    assert expand("%env{MY_NAME}%_$ENV{MY_NAME}_%env{UNSET}%", process) == "a_b_c_a_b_c_"
    assert expand("%tag% %arg1% %arg9% %unknown%", process) == "python3 -m %arg9% %unknown%"


def test_slurms_rank_comes_before_open_mpis():
    environment = {"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "2"}
    assert expand("%rank%", Process("n", 1, ("python",), environment)) == "0"


def test_the_size_of_open_mpi_comes_before_a_generic_one():
    environment = {"MPI_SIZE": "1", "MPI_LOCALNRANKS": "2", "OMPI_COMM_WORLD_SIZE": "8"}
    assert expand("%size%", Process("n", 1, ("python",), environment)) == "8"


def test_without_a_launcher_the_rank_is_0_and_nid_the_process():
    process = Process("n", 5, ("python",), {"RANK": "3"})
    assert expand("%rank% %size% %nid%", process) == "0 1 5"


@settings(max_examples=50)
@given(st.text(st.characters(exclude_characters="%$"), max_size=30))
def test_text_without_placeholders_is_left_alone(text):
    assert expand(text, Process("n", 5, ("python",), {})) == text


def test_counters_stand_in_a_file_of_their_own_and_are_read_as_modelled(here, capsys):
    assert run(f"--pmc SQ_WAVES SQ_INSTS_VALU --kernel-trace -f csv -d out -o x {TRAINER}") == 0
    assert files(here) == [
        "out/x_agent_info.csv",
        "out/x_counter_collection.csv",
        "out/x_kernel_trace.csv",
    ]
    assert "Opened result file: out/x_counter_collection.csv" in capsys.readouterr().err
    profile = tidyprof.read("out")
    kernels = profile.events[profile.events["kind"].isin(ALL_KERNELS) & ~is_memory_copy(profile)]
    assert dict(profile.counters["name"].value_counts()) == {
        "SQ_WAVES": len(kernels),
        "SQ_INSTS_VALU": len(kernels),
    }
    assert (profile.counters["value"] > 0).all()
    assert profile.meta["origin"].kind == "modelled"
    lines = Path("out/x_counter_collection.csv").read_text().splitlines()
    assert re.search(r',"SQ_INSTS_VALU",\d+\.000000,\d+,\d+$', lines[1])


def test_counters_are_those_that_rocprof_compute_gets_of_the_same_run(here):
    assert run(f"--pmc SQ_WAVES TCC_EA0_RDREQ_sum -f csv -d out -o x {TRAINER}") == 0
    options = "profile -n a --format-rocprof-output csv --no-roof"
    assert played_runs.run(f"rocprof-compute {options} {TRAINER}") == 0
    counted = pd.read_csv("out/x_counter_collection.csv").pivot(
        index="Dispatch_Id", columns="Counter_Name", values="Counter_Value"
    )
    (path,) = Path("workloads").rglob("pmc_perf.csv")
    table = pd.read_csv(path).set_index("Dispatch_ID")
    for name in ("SQ_WAVES", "TCC_EA0_RDREQ_sum"):
        assert counted[name].tolist() == table[name].tolist()


def test_regular_expressions_choose_the_kernels_that_are_counted_and_not_those_that_are_traced(
    here,
):
    for folder, options in {
        "all": "",
        "some": "--kernel-include-regex Cijk",
        "rest": "--kernel-exclude-regex Cijk",
    }.items():
        assert (
            run(f"--pmc SQ_WAVES {options} --kernel-trace -f csv -d {folder} -o x {TRAINER}") == 0
        )
    names = {
        folder: pd.read_csv(f"{folder}/x_counter_collection.csv")["Kernel_Name"]
        for folder in ("all", "some", "rest")
    }
    assert names["some"].str.contains("Cijk").all()
    assert not names["rest"].str.contains("Cijk").any()
    assert 0 < len(names["some"]) < len(names["all"]) == len(names["some"]) + len(names["rest"])
    assert len(pd.read_csv("some/x_kernel_trace.csv")) == len(names["all"])
    assert run(f"--pmc SQ_WAVES --kernel-include-regex nothing -f csv -d none -o x {TRAINER}") == 0
    assert "none/x_counter_collection.csv" not in files(here)


def test_rocprofv3_avail_names_the_counters_and_says_which_go_together(here, capsys):
    assert played_runs.run("rocprofv3-avail list --pmc") == 0
    names = re.search("^Modelled counters : (.*)$", capsys.readouterr().out, re.MULTILINE)[1].split(
        ", "
    )
    assert {"SQ_WAVES", "SQ_INSTS_VALU", "GRBM_COUNT"} <= set(names)
    assert played_runs.run("rocprofv3-avail pmc-check SQ_WAVES GRBM_COUNT") == 0
    assert played_runs.run(f"rocprofv3-avail pmc-check {NINE}") == 2
    assert played_runs.run("rocprofv3-avail pmc-check TCP_HIT") == 2
