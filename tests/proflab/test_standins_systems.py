"""The stand-ins for rocprof-sys and rocprof-compute."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidyprof
from gpumodel.workload import Sampling
from proflab.standins.rocprof_compute_tables import NEWER_METRICS, SPEED_OF_LIGHT_NAMES
from proflab.standins.rocprof_sys_settings import settings_of
from proflab.standins.tools import build_parser
from tests.proflab import played_runs
from tests.proflab.played_runs import run

TRAINER = "-- python3 -m cifar_train --max-steps 3"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder of its own, the made-up player, and no variables of a launcher or of rocprof-sys."""
    return played_runs.stage(tmp_path, monkeypatch)


def names(pattern: str) -> list[str]:
    return sorted(path.name for path in Path().glob(pattern))


def test_run_writes_a_trace_below_a_folder_of_the_programs_name(here, capsys):
    assert run(f"rocprof-sys-run {TRAINER}") == 0
    assert names("rocprofsys-python3-output/*/perfetto-trace-*.proto") == [
        "perfetto-trace-4200.proto"
    ]
    assert not names("rocprofsys-python3-output/*/wall_clock*")
    assert (
        "rocprof-sys-run: stand-in, nothing was measured: modelled MI300X"
        in capsys.readouterr().err
    )


def test_without_options_the_double_hyphen_can_be_left_out(here):
    assert run("rocprof-sys-run python3 -m cifar_train") == 0
    assert names("rocprofsys-python3-output/*/*.proto")


def test_a_profile_alone_switches_the_trace_off(here):
    assert run(f"rocprof-sys-run --profile -o only {TRAINER}") == 0
    assert run(f"rocprof-sys-run --profile --trace -o both {TRAINER}") == 0
    assert names("only/*/wall_clock*") == ["wall_clock-4200.json", "wall_clock-4200.txt"]
    assert not names("only/*/*.proto")
    assert names("both/*/*.proto")
    assert names("both/*/wall_clock*")


@pytest.mark.parametrize(
    ("command", "by_clock", "by_cpu_time"),
    [
        ("rocprof-sys-run", None, None),
        ("rocprof-sys-run -S", 0, 300),
        ("rocprof-sys-run -S realtime", 300, 0),
        ("rocprof-sys-run -S realtime cputime --sample-realtime 50", 50, 300),
        ("rocprof-sys-run --sample-realtime", None, None),
        ("rocprof-sys-sample", 0, 300),
        ("rocprof-sys-sample -f 100 --realtime", 100, 0),
        ("rocprof-sys-sample --cputime 40 --realtime", 300, 40),
        ("rocprof-sys-sample -c 500.cfg", 500, 0),
        ("rocprof-sys-sample -c 500.cfg --cputime", 500, 500),
    ],
)
def test_options_and_settings_choose_the_clock_and_the_rate_of_call_stacks(
    here, monkeypatch, command, by_clock, by_cpu_time
):
    seen = []
    Path("500.cfg").write_text(
        "ROCPROFSYS_SAMPLING_REALTIME = true\nROCPROFSYS_SAMPLING_FREQ = 500\n"
    )

    def simulate(workload):
        seen.append(workload.stacks)
        return played_runs.simulate(workload)

    monkeypatch.setitem(sys.modules, "gpumodel.simulation", SimpleNamespace(simulate=simulate))
    assert run(f"{command} {TRAINER}") == 0
    assert seen == [by_clock is not None and Sampling(by_clock, by_cpu_time)]


def test_a_generated_configuration_is_read_again_and_weaker_than_environment_and_options(
    here, monkeypatch
):
    assert run("rocprof-sys-avail -G rps.cfg") == 0
    text = (
        Path("rps.cfg")
        .read_text()
        .replace("ROCPROFSYS_PROFILE                                 = false", "")
    )
    Path("rps.cfg").write_text(
        text + "ROCPROFSYS_PROFILE = true  # tables too\nROCPROFSYS_OUTPUT_PATH = file\n"
    )
    assert run(f"rocprof-sys-sample -c rps.cfg {TRAINER}") == 0
    assert names("file/*/wall_clock*")
    monkeypatch.setenv("ROCPROFSYS_OUTPUT_PATH", "environment")
    assert run(f"rocprof-sys-sample -c rps.cfg {TRAINER}") == 0
    assert names("environment/*/*.proto")
    assert run(f"rocprof-sys-sample -c rps.cfg -o option 'rank%rank%-' {TRAINER}") == 0
    assert "rank0-perfetto-trace-4200.proto" in names("option/*/*.proto")


def test_settings_switch_sensors_and_domains(here, monkeypatch):
    monkeypatch.setenv("ROCPROFSYS_TIME_OUTPUT", "false")
    monkeypatch.setenv("ROCPROFSYS_ROCM_DOMAINS", "kernel_dispatch")
    assert run(f"rocprof-sys-run -E amd-smi -o out {TRAINER}") == 0
    events = tidyprof.read_perfetto(Path("out/perfetto-trace-4200.proto"))
    assert events.counters.empty
    assert not events.events["name"].astype(str).str.contains("hipLaunchKernel|MEMORY_COPY").any()


def test_each_rank_behind_mpirun_has_its_own_files(here):
    assert run("rocprof-sys-run -o out -- mpirun -n 2 cifar-train") == 0
    assert names("out/*/*.proto") == ["perfetto-trace-4200.proto", "perfetto-trace-4210.proto"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (f"rocprof-sys-sample -I roctracer {TRAINER}", 1, "invalid choice: 'roctracer'"),
        (f"rocprof-sys-run --frobnicate {TRAINER}", 1, "unrecognized arguments: --frobnicate"),
        (f"rocprof-sys-sample -S {TRAINER}", 1, "unrecognized arguments: -S"),
        (f"rocprof-sys-run --freq 9 {TRAINER}", 1, "unrecognized arguments: --freq"),
        (
            f"rocprof-sys-sample --sampling-freq 9 {TRAINER}",
            1,
            "unrecognized arguments: --sampling-freq",
        ),
        (f"rocprof-sys-sample --freq 0 {TRAINER}", 1, "ROCPROFSYS_SAMPLING_FREQ must be above 0"),
        ("rocprof-sys-run --trace", 1, "No command was given"),
        (f"rocprof-sys-run -c missing.cfg {TRAINER}", 1, "missing.cfg cannot be read"),
        ("rocprof-sys-run -- ls", 2, "is not the course's workload"),
        (f"rocprof-sys-run --flat-profile {TRAINER}", 2, "--flat-profile is not modelled"),
        (f"rocprof-sys-run -c rocpd.cfg {TRAINER}", 2, "ROCPROFSYS_USE_ROCPD is not modelled"),
        ("rocprof-sys-avail -G nowhere/rps.cfg", 2, "cannot be written"),
        ("rocprof-sys-avail -H -c CPU", 2, "counters of processors are not modelled"),
    ],
)
def test_what_rocprof_sys_refuses(here, capsys, text, code, said):
    Path("rocpd.cfg").write_text("ROCPROFSYS_USE_ROCPD = ON\n")
    assert run(text) == code
    assert said in capsys.readouterr().err


def test_settings_are_listed_with_default_and_meaning(here, capsys):
    assert run("rocprof-sys-avail -bd -r ROCM_DOMAINS") == 0
    assert capsys.readouterr().out.split(" | ")[0].strip() == "ROCPROFSYS_ROCM_DOMAINS"


def test_hardware_counters_are_listed(here, capsys):
    assert run("rocprof-sys-avail -H -c GPU -r ^SQ_WAVES") == 0
    names = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()]
    assert "SQ_WAVES" in names
    assert all(name.startswith("SQ_WAVES") for name in names)


def test_a_profiled_workload_lies_where_the_tool_puts_it_and_is_read(here, capsys):
    assert run(f"rocprof-compute profile -n cifar {TRAINER}") == 0
    folder = Path("workloads/cifar/MI300X_A1")
    assert {"sysinfo.csv", "pmc_perf.csv", "roofline.csv"} <= {
        path.name for path in folder.iterdir()
    }
    assert "Path: workloads/cifar/MI300X_A1" in capsys.readouterr().out
    assert (
        tidyprof.kernels(tidyprof.read_rocprof_compute(folder), include=("kernel", "collective"))[
            "calls"
        ].sum()
        > 0
    )


def test_amds_command_profiles_one_set_without_roofline(here):
    assert (
        run(f"rocprof-compute profile --no-roof --set compute_thruput_flops --name c {TRAINER}")
        == 0
    )
    folder = Path("workloads/c/MI300X_A1")
    assert not (folder / "roofline.csv").exists()
    assert len(list((folder / "perfmon").iterdir())) < 6


@pytest.fixture
def workload(here, capsys):
    """A profiled workload."""
    assert run(f"rocprof-compute profile -n w --format-rocprof-output rocpd {TRAINER}") == 0
    capsys.readouterr()
    return Path("workloads/w/MI300X_A1")


def test_the_tables_are_those_of_tidyprof(workload, capsys):
    assert run(f"rocprof-compute analyze -p {workload} --decimal 1") == 0
    out, err = capsys.readouterr()
    assert "stand-in, nothing was measured here" in err
    table = tidyprof.speed_of_light(tidyprof.read_rocprof_compute(workload))
    shown = [line.split("│") for line in out.splitlines() if line.startswith("│ 2.1.")]
    expected = table[~table["metric"].isin(NEWER_METRICS)]
    assert (
        [row[2].strip() for row in shown]
        == expected["metric"].tolist()
        == list(SPEED_OF_LIGHT_NAMES)
    )
    row = next(row for row in shown if row[2].strip() == "Wavefront Occupancy")
    value = expected.set_index("metric").loc["Wavefront Occupancy", "value"]
    assert row[3].strip() == f"{value:.1f}"


def test_metrics_are_chosen_by_id_and_a_kernel_by_number(workload, capsys):
    assert run(f"rocprof-compute analyze -p {workload} -k 1 -b 2.1.5 2.1.0") == 0
    shown = [
        line.split("│")[1].strip()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("│ 2.1.")
    ]
    assert shown == ["2.1.0", "2.1.5"]


def test_list_stats_shows_kernels_in_the_asked_unit(workload, capsys):
    assert run(f"rocprof-compute analyze -p {workload} --list-stats -t us") == 0
    out = capsys.readouterr().out
    assert "0.1 Top Kernels" in out
    assert "0.2 Dispatch List" in out
    assert "Sum(us)" in out
    # Three all-reduce kernels of 110,027 ns.
    assert "330.08" in out


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (f"rocprof-compute profile {TRAINER}", 1, "-n/--name is required"),
        (f"rocprof-compute profile -n a/b {TRAINER}", 1, "not permitted in -n/--name"),
        ("rocprof-compute profile -n a", 1, "Profiling command required"),
        (f"rocprof-compute profile -n a --no-roof --roof-only {TRAINER}", 1, "cannot be combined"),
        (f"rocprof-compute profile -n a -b SQ {TRAINER}", 2, "Invalid metric id: SQ"),
        (
            f"rocprof-compute profile -n a --torch-trace {TRAINER}",
            2,
            "unrecognized arguments: --torch-trace",
        ),
        (f"rocprof-compute profile -n a -k no_such_kernel {TRAINER}", 2, "no kernel is left"),
        (f"rocprof-compute profile -n a --set no_such_set {TRAINER}", 2, "no set 'no_such_set'"),
        (
            "rocprof-compute profile -n a -- mpirun -n 2 cifar-train",
            2,
            "several ranks are not modelled here",
        ),
        ("rocprof-compute profile -n a -- ./single_process.sh", 2, "is not the course's workload"),
        ("rocprof-compute analyze", 1, "required: -p/--path"),
        ("rocprof-compute analyze -p nowhere", 2, "nowhere"),
        ("rocprof-compute analyze -p . --gui", 2, "--gui is not modelled"),
        ("rocprof-compute frobnicate", 2, "invalid choice: 'frobnicate'"),
    ],
)
def test_what_rocprof_compute_refuses(here, capsys, text, code, said):
    assert run(text) == code
    assert said in capsys.readouterr().err
    assert not Path("workloads").exists()


def test_blocks_without_a_model_and_wrong_kernels_are_refused(workload, capsys):
    assert run(f"rocprof-compute analyze -p {workload} -b 16") == 2
    assert "block 16 is not modelled" in capsys.readouterr().err
    assert run(f"rocprof-compute analyze -p {workload} -k 99") == 1
    assert "99 is an invalid kernel id" in capsys.readouterr().err


def test_metric_ids_are_listed_without_a_gpu(here, capsys):
    assert run("rocprof-compute profile --list-metrics gfx942") == 0
    assert "2.1.4 -> MFMA FLOPs (F16)" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("more", "shown"), [("", False), (" --advanced", True), (" --all", True)])
def test_settings_called_advanced_are_shown_where_asked_for(here, more, shown):
    assert run(f"rocprof-sys-avail -G default.cfg{more}") == 0
    text = Path("default.cfg").read_text()
    assert ("ROCPROFSYS_SAMPLING_REALTIME" in text) == shown
    assert "ROCPROFSYS_SAMPLING_FREQ" in text


@pytest.mark.parametrize(
    ("words", "set_to"),
    [
        ("--exclude all", {"ROCM": "false", "MPIP": "false"}),
        ("--include mpip", {"MPIP": "true"}),
        ("", {}),
    ],
)
def test_backends_are_switched_by_their_names_or_all_at_once(words, set_to):
    options = build_parser("rocprof-sys-sample").parse_args(words.split())
    found = settings_of("rocprof-sys-sample", options)
    backends = {name: found.get(f"ROCPROFSYS_USE_{name}") for name in ("ROCM", "MPIP")}
    assert {name: value for name, value in backends.items() if value} == set_to
