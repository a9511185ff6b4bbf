"""Many files: reduced in other processes, in order, with errors that name the file."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import pytest

from tidyprof import parallel
from tidyprof.analyses.collectives import collective_entries, collectives
from tidyprof.analyses.device_time import overlap
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.ranks import compare_ranks, ranks
from tidyprof.errors import ProfileReadError
from tidyprof.parallel import map_profiles
from tidyprof.readers.registry import read
from tidyprof.tables.contract import Profile

from .chrome_writer import HEADER, kernel, write_trace

RANKS = 4


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    """One trace per rank: a kernel that lasts 1000 (rank + 1) ns, then an all-reduce that all leave
    at 20000.
    """
    folder = tmp_path_factory.mktemp("ranks")
    paths = []
    for rank in range(RANKS):
        header = HEADER | {
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": RANKS}
        }
        arguments = {"Collective name": "allreduce", "stream": 4}
        events = [
            kernel("gemm", 1000, 1000 * (rank + 1), 1),
            kernel("ncclDevKernel", 1000 * (rank + 2), 20_000 - 1000 * (rank + 2), 2, **arguments),
        ]
        paths.append(write_trace(folder / f"trace_{rank}.json.gz", events, header=header))
    return paths


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def broken(tmp_path) -> Path:
    path = tmp_path / "broken.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel"')
    return path


def no_table(profile: Profile) -> int:
    return len(profile.events)


def a_bug(profile: Profile) -> pd.DataFrame:
    return profile.events["no such column"]


def refuses(profile: Profile) -> pd.DataFrame:
    raise ValueError("this recording has no steps")


def ends_the_process(profile: Profile) -> pd.DataFrame:
    import os

    os._exit(9)


def test_tables_in_the_order_of_the_paths_with_their_rank(files, pool):
    table = map_profiles(reversed(files), kernels, pool)
    assert table.columns[:2].tolist() == ["file", "rank"]
    gemm = table[table["short_name"] == "gemm"]
    assert gemm["file"].tolist() == [str(path) for path in reversed(files)]
    assert gemm["rank"].tolist() == [3, 2, 1, 0]
    assert gemm["total_ns"].tolist() == [4000, 3000, 2000, 1000]
    assert table["rank"].dtype == "Int32"
    assert str(table.attrs["origin"]).startswith("recorded")
    assert table.attrs["errors"] == []


def test_a_table_with_ranks_keeps_its_own(files, pool):
    table = map_profiles(files, partial(kernels, per_device=True), pool)
    assert table.columns[:3].tolist() == ["file", "rank", "device"]
    assert table.columns.is_unique


def test_ranks_from_tables_reduced_elsewhere_are_those_of_the_profiles(files, pool):
    entries = map_profiles(files, collective_entries, pool)
    expected = ranks(map(read, files))
    pd.testing.assert_frame_equal(
        compare_ranks(map_profiles(files, overlap, pool), entries), expected
    )
    assert expected.attrs["straggler"] == 3
    assert collectives(entries)["wait_ns"].tolist() == [3000, 2000, 1000, 0]


def test_threads_may_run_what_processes_could_not(files):
    with ThreadPoolExecutor(2) as threads:
        table = map_profiles(files, lambda profile: kernels(profile).head(1), threads)
    assert table["file"].nunique() == len(table) == RANKS


def test_this_process_stops_at_the_first_error(files, broken, monkeypatch):
    read_here = []
    monkeypatch.setattr(
        parallel, "read", lambda path, **options: read_here.append(path) or read(path, **options)
    )
    assert map_profiles(files, lambda profile: kernels(profile).head(1))["file"].nunique() == RANKS
    with pytest.raises(ProfileReadError, match="broken"):
        map_profiles([files[0], broken, files[1]], kernels)
    assert read_here == [*map(str, files), str(files[0]), str(broken)]


def test_an_error_names_the_file_and_stops(files, pool, broken):
    with pytest.raises(ProfileReadError, match=r"broken\.json.*Next step") as caught:
        map_profiles([*files, broken], kernels, pool)
    assert caught.value.path == str(broken)
    assert "\n" not in str(caught.value)
    with pytest.raises(ProfileReadError) as alone:
        read(broken)
    assert str(caught.value) == str(alone.value)
    assert (caught.value.cause, caught.value.next_step) == (
        alone.value.cause,
        alone.value.next_step,
    )


def test_others_go_on(files, pool, broken):
    table = map_profiles([files[0], broken, files[1]], kernels, pool, on_error="continue")
    assert table["rank"].unique().tolist() == [0, 1]
    ((path, message),) = table.attrs["errors"]
    assert path == str(broken)
    assert message.startswith(str(broken))


def test_what_an_analysis_refuses_names_the_file(files, pool):
    with pytest.raises(
        ProfileReadError, match=r"trace_0.*none of 4 .*no steps.*Likely cause.*Next step"
    ):
        map_profiles(files, refuses, pool, on_error="continue")


def test_tables_of_different_columns_are_not_put_below_each_other(files):
    def reduce(profile: Profile) -> pd.DataFrame:
        return pd.DataFrame({f"rank_{profile.meta['rank']}": [1]})

    with ThreadPoolExecutor(2) as threads, pytest.raises(ValueError, match="different columns"):
        map_profiles(files, reduce, threads)


def test_a_bug_keeps_its_own_exception(files, pool):
    with pytest.raises(KeyError) as caught:
        map_profiles(files[:1], a_bug, pool)
    assert str(files[0]) in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="must return a table, not int"):
        map_profiles(files[:1], no_table, pool)


def test_a_killed_process_is_explained(files):
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh,
        pytest.raises(ProfileReadError, match="a process ended"),
    ):
        map_profiles(files, ends_the_process, fresh)


class EndsEarly(Executor):
    """Cancels what it has not done, as Dask's client does once the scheduler has ended."""

    def submit(self, function, /, *args, **options):
        future = Future()
        if "trace_1" in str(args[0]):
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_result(function(*args, **options))
        return future


def test_what_the_executor_gave_up_is_named_and_the_others_count(files):
    with pytest.raises(ProfileReadError, match="scheduler"):
        map_profiles(files, kernels, EndsEarly())
    table = map_profiles(files, kernels, EndsEarly(), on_error="continue")
    assert sorted(table["rank"].unique()) == [0, 2, 3]
    ((file, _),) = table.attrs["errors"]
    assert "trace_1" in file


def test_arguments(files):
    with pytest.raises(ValueError, match="at least one path"):
        map_profiles([], kernels)
    with pytest.raises(ValueError, match="path"):
        map_profiles([files[0], files[0]], kernels)
    with pytest.raises(ValueError, match="on_error"):
        map_profiles(files, kernels, on_error="ignore")


def test_options_reach_the_reader(files, pool):
    with pytest.raises(ProfileReadError, match="no rank 1, only 0"):
        map_profiles(files, kernels, pool, rank=1)


def test_the_error_can_be_sent_between_processes():
    parts = ("a.json", "damaged", "a full disk", "record again")
    error = pickle.loads(pickle.dumps(ProfileReadError(*parts)))
    assert type(error) is ProfileReadError
    assert (error.path, error.finding, error.cause, error.next_step) == parts


def test_recorded_ranks(recordings, pool):
    paths = sorted((recordings / "torch-nvidia-hta-2of128-ranks").glob("sampled_rank-*.json.gz"))
    table = map_profiles(paths, kernels, pool)
    assert table.groupby("rank")["calls"].sum().tolist() == [1154, 1104]
