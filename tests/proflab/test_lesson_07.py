"""The exercises of lesson 07 on what its commands write, on AMD's recording and by hand; and its own modules."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidyprof
from proflab.errors import CourseError
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.jobs import Job
from proflab.parts import rank_job
from proflab.parts.gradient_buckets import gradient_buckets
from proflab.parts.node_topology import (
    NODES,
    binding_problem,
    cpu_bind,
    example_binding,
    least_cores,
    machines,
    node_topology,
    parsed,
)
from proflab.parts.rank_names import LAUNCHERS, RANKS, file_names, names_table
from proflab.parts.steady_part import SteadyPart, own_run, steady_part
from proflab.recordings import recording
from proflab.standins.__main__ import main
from tidyprof.tables.contract import Profile

lesson = exercises_of("07")

TRACES = "--kernel-trace --marker-trace --output-format csv --output-file rank%env{RANK}%_pid%pid%"
TRAINER = "torchrun --standalone --nproc-per-node 4 -m cifar_train --roctx --max-steps 4 --batch-size 32"
"""Fewer steps and images than in the lesson."""

PARAMETERS = 23_712_932
"""Of this ResNet-50: what the five all-reduces of a step add up to in AMD's published trace (TraceLens example in
github.com/amd/HPCTrainingExamples)."""

IN_A_SLURM_JOB = "mpirun in a Slurm job"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SteadyPart]:
    """What rocprofv3's stand-in writes for commands such as the lesson's."""
    path = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_PROCID", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PROFLAB_RUN_WORKLOAD"):
            patch.delenv(name, raising=False)
        patch.chdir(path)
        for folder, fault in (("healthy", ""), ("late", "--pathology rank-skew")):
            command = f"rocprofv3 {TRACES} --output-directory {folder} -- {TRAINER} {fault}"
            assert main(shlex.split(command)) == 0
    return {name: steady_part(own_run(path / name)) for name in ("healthy", "late")}


@pytest.fixture(scope="module")
def traces() -> Profile:
    shipped = recording("modelled-rank-skew")
    return tidyprof.read(shipped.path / "torch", origin=shipped.origin)


@pytest.fixture(scope="module")
def measured(recordings: Path) -> Profile:
    return tidyprof.read(recordings / "torch-mi300-ddp-4ranks-fused" / "merged_all_events.json.gz")


def test_every_exercise_is_proven_here() -> None:
    assert [exercise.id for exercise in lesson.EXERCISES] == [f"07.{number}" for number in range(1, 7)]


def test_file_names_are_right_and_wrong_as_the_tool_expands_them() -> None:
    selftest("07.1", IN_A_SLURM_JOB)


@pytest.mark.parametrize("number", ["07.2", "07.3"])
def test_bucket_exercises_on_the_shipped_traces(number: str, traces: Profile) -> None:
    buckets = gradient_buckets(traces)
    selftest(number, buckets, {"buckets": buckets})


@pytest.mark.parametrize("number", ["07.4", "07.5"])
def test_rank_exercises_on_the_shipped_traces(number: str, traces: Profile) -> None:
    selftest(number, traces, {"tidyprof": tidyprof, "run": traces})


@pytest.mark.parametrize("number", ["07.4", "07.5"])
def test_rank_exercises_on_real_gpus(number: str, measured: Profile) -> None:
    selftest(number, measured, {"tidyprof": tidyprof, "run": measured})


@pytest.mark.parametrize("name", ["LUMI", "Frontier"])
def test_binding_exercise_on_the_printed_nodes(name: str) -> None:
    selftest("07.6", node_topology(name))


@pytest.mark.parametrize("number", [f"07.{number}" for number in range(2, 6)])
def test_without_data_nothing_is_judged(number: str) -> None:
    assert find(number).on(None).evaluate(1).outcome is Outcome.NOT_ATTEMPTED


def test_the_fault_adds_waiting_and_no_transfer(runs: dict[str, SteadyPart]) -> None:
    healthy, late = (tidyprof.ranks(runs[name].profile) for name in ("healthy", "late"))
    assert late.attrs["straggler"] == 3
    assert late["wait_ns"].sum() > 3 * healthy["wait_ns"].sum()
    # A broadcast's root does not wait, so who is late decides what little of it counts as transfer.
    assert late["transfer_ns"].sum() == pytest.approx(healthy["transfer_ns"].sum(), rel=0.2)
    assert late["computation_ns"].max() == pytest.approx(late["computation_ns"].min(), rel=0.05)


def test_the_straggler_has_the_least_busy_gpu_and_the_shortest_collectives(runs: dict[str, SteadyPart]) -> None:
    profile = runs["late"].profile
    busy = tidyprof.busy(profile).set_index("rank")["union_percent"]
    assert busy.idxmin() == lesson.straggler(profile) == 3
    assert busy.drop(3).min() > 2 * busy[3]


def test_real_buckets_add_up_to_the_model_in_every_step(measured: Profile) -> None:
    buckets = gradient_buckets(measured)
    assert buckets.groupby("step")["elements"].sum().tolist() == [PARAMETERS] * 3
    assert buckets["bucket"].tolist() == [1, 2, 3, 4, 5] * 3
    assert lesson.parameters(buckets) == PARAMETERS
    assert (buckets["longest_ns"] > buckets["transfer_ns"]).all()


def test_modelled_buckets_are_those_of_the_real_run(traces: Profile, measured: Profile) -> None:
    assert gradient_buckets(traces)["elements"].tolist() == gradient_buckets(measured)["elements"].tolist()[:5]


def write_trace(folder: Path, rank: int, collectives: list[tuple[str, float, float, int]], **more: object) -> None:
    """A trace of one rank whose collectives are (name, start in µs, length in µs, elements)."""
    events = [
        {
            **{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic", "pid": 2, "tid": 4, "ts": 1000 + start},
            "dur": length,
            "args": {"device": 2, "stream": 4, "Collective name": name, "In msg nelems": count, "dtype": "Float"}
            | more,
        }
        for name, start, length, count in collectives
    ]
    content = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
    path = folder / f"trace_rank{rank}_of_2.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def test_buckets_by_hand(tmp_path: Path) -> None:
    # Rank 1 enters 30 µs later; the exchange then takes 10 µs: 1000 floats in 10 µs are 0.4 GB/s.
    write_trace(tmp_path, 0, [("broadcast", 0, 5, 7), ("allreduce", 100, 40, 1000)])
    write_trace(tmp_path, 1, [("broadcast", 1, 5, 7), ("allreduce", 130, 10, 1000)])
    buckets = gradient_buckets(tidyprof.read(tmp_path))
    assert buckets[["elements", "bytes", "longest_ns", "transfer_ns"]].values.tolist() == [[1000, 4000, 40_000, 10_000]]
    assert lesson.bucket_rate(buckets) == pytest.approx(0.4)
    assert lesson.bucket_rate(buckets, "longest_ns") == pytest.approx(0.1)


def test_a_trace_without_sizes_is_refused(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_trace(tmp_path, rank, [("allreduce", 10 * rank, 40, 1000)], dtype="Complex")
    with pytest.raises(ValueError, match="does not state how large"):
        gradient_buckets(tidyprof.read(tmp_path))


def test_buckets_that_do_not_match_the_ranks_are_refused(tmp_path: Path) -> None:
    # Rank 1 lacks the second all-reduce: none of them can be compared, and the sizes of rank 0 have no row.
    write_trace(tmp_path, 0, [("allreduce", 0, 40, 1000), ("allreduce", 100, 40, 1000)])
    write_trace(tmp_path, 1, [("allreduce", 30, 10, 1000)])
    with pytest.raises(ValueError, match="all-reduces on all ranks"):
        gradient_buckets(tidyprof.read(tmp_path))


def test_a_rank_is_named_by_its_launchers_variable_only() -> None:
    table = names_table(["rank%rank%", "rank%env{RANK}%"]).set_index(["launcher", "pattern"])["files"]
    assert table["torchrun"].tolist() == [1, 4]
    assert table["srun"].tolist() == [4, 1]
    assert table["mpirun"].tolist() == [4, 1]
    assert table[IN_A_SLURM_JOB].tolist() == [1, 1]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_process_numbers_alone_do_not_keep_two_nodes_apart(launcher: str) -> None:
    assert len({name.text for name in file_names("%pid%", launcher)}) == RANKS // 2
    assert len({name.text for name in file_names("%hostname%_%pid%", launcher)}) == RANKS


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (3, "A text such as"),
        ("  ", "A text such as"),
        ("rank%q{OMPI_COMM_WORLD_RANK}", "own placeholders"),
        ("rank%env{OMPI_COMM_WORLD_LOCAL_RANK}%", "two nodes count alike"),
    ],
)
def test_bad_names_are_told_why(pattern: object, words: str) -> None:
    result = find("07.1").on(IN_A_SLURM_JOB).evaluate(pattern)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_an_unknown_launcher_is_refused() -> None:
    with pytest.raises(CourseError, match="no launcher 'qsub'"):
        file_names("%rank%", "qsub")


def test_bindings_are_those_that_the_sites_publish() -> None:
    # LUMI's guide (distribution-binding) and ALCF's (running-jobs-aurora, one rank per half GPU) print these options.
    lumi, aurora = node_topology("LUMI"), node_topology("Aurora")
    assert cpu_bind(example_binding(lumi), lumi) == (
        "--cpu-bind=mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000"
    )
    assert cpu_bind(example_binding(aurora), aurora) == (
        "--cpu-bind=list:1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100"
    )


@pytest.mark.parametrize("name", NODES)
def test_every_machine_has_a_binding_that_passes(name: str) -> None:
    node = node_topology(name)
    assert binding_problem(example_binding(node), node) is None
    assert len(node.table) == len(node.cores) == machines().set_index("machine").loc[name, "gpus"]
    assert node.table.attrs["origin"].startswith("documented: ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda right: "49-55", "A list of 8 texts"),
        (lambda right: ["all", *right[1:]], "`all` is no list of cores"),
        (lambda right: ["55-49", *right[1:]], "is no list of cores"),
        (lambda right: ["48-55", *right[1:]], "core 48 is reserved"),
        (lambda right: ["49-55,64", *right[1:]], "there is no core 64"),
        (lambda right: ["17-23", *right[1:]], "the cores near GPU 0 are 48-55"),
        (lambda right: ["49,50", *right[1:]], "has 2 cores"),
    ],
)
def test_bad_bindings_are_told_why(change, words: str) -> None:
    node = node_topology("LUMI")
    assert words in (binding_problem(change(example_binding(node)), node) or "")


def test_ranks_that_share_cores_are_told_so() -> None:
    node = node_topology("MI300X server")
    shared = ["0-7", "7-15", *example_binding(node)[2:]]
    assert "Ranks 0 and 1 share the cores 7" in (binding_problem(shared, node) or "")


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(CourseError, match="no machine 'Lumi'"):
        node_topology("Lumi")


def test_a_rank_needs_a_core_for_each_loader_and_its_own() -> None:
    assert least_cores() == 3  # two loader processes are the trainer's default


@given(st.sets(st.integers(0, 200), min_size=1))
def test_cores_as_text_are_read_back(cores: set[int]) -> None:
    assert parsed(",".join(str(core) for core in sorted(cores))) == cores
    assert parsed(f"{min(cores)}-{max(cores)}") == set(range(min(cores), max(cores) + 1))


def test_a_refused_job_is_replaced_by_the_recording(monkeypatch, capsys) -> None:
    def refuse(*arguments: object, **options: object) -> Job:
        raise CourseError("no partition of that name")

    monkeypatch.setattr(rank_job, "job", refuse)
    folder = recording("modelled-rank-skew").path / "torch"
    submitted = rank_job.submit_ranks("torch_profiler", ranks=4, recording=folder)
    (profile,) = submitted.profiles()
    said = capsys.readouterr().out
    assert "no partition of that name" in said
    assert "nothing was submitted; what follows is from `modelled-rank-skew/torch`" in said
    assert profile.meta["ranks"] == [0, 1, 2, 3]


def test_a_submitted_job_gives_its_own_files(monkeypatch, tmp_path: Path) -> None:
    write_trace(tmp_path, 0, [("allreduce", 0, 40, 1000)])
    write_trace(tmp_path, 1, [("allreduce", 30, 10, 1000)])
    files = sorted(tmp_path.iterdir())
    asked = {}

    def accept(script: str, **options: object) -> Job:
        asked.update(script=script, **options)
        return Job(script, 17, tmp_path, None)

    monkeypatch.setattr(rank_job, "job", accept)
    monkeypatch.setattr(Job, "result", lambda self: files)
    profiles = rank_job.submit_ranks("torch_profiler", ranks=2, recording=tmp_path).profiles()
    assert asked == {"script": "torch_profiler", "ranks": 2, "recording": tmp_path}
    assert tidyprof.ranks(profiles)["wait_ns"].tolist() == [30_000, 0]
