"""The ranks of a large job on a real Dask: workers that are killed, and files that kill them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from dask import config
from distributed import Client, LocalCluster

from tests.tidyprof.chrome_writer import HEADER, kernel, write_trace
from tidyprof.analyses.kernels import kernels
from tidyprof.diagnosis.recordings import triage_signs
from tidyprof.diagnosis.verdict import as_json, triage
from tidyprof.many import read_many
from tidyprof.readers.registry import read
from tidyprof.tables.contract import Profile

RANKS = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One trace per rank, whose one kernel lasts 1000 (rank + 1) ns."""
    folder = tmp_path_factory.mktemp("ranks")
    header = HEADER | {"distributedInfo": {"backend": "nccl", "world_size": RANKS}}
    return [
        write_trace(
            folder / f"trace_{rank}.json.gz",
            [kernel("gemm", 1000, 1000 * (rank + 1), 1)],
            header=header | {"distributedInfo": header["distributedInfo"] | {"rank": rank}},
        )
        for rank in range(RANKS)
    ]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two worker processes, one file at a time each."""
    patient = {"distributed.comm.timeouts.connect": "600s", "distributed.scheduler.allowed-failures": 1}
    with (
        config.set(patient),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def kills_once(profile: Profile, marker: str) -> pd.DataFrame:
    """`kernels`, but the first worker that comes to rank 5 is killed there."""
    if profile.meta["rank"] == 5:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
    return kernels(profile)


def kills_always(profile: Profile) -> pd.DataFrame:
    """`kernels`, but whoever comes to rank 5 is killed there."""
    if profile.meta["rank"] == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return kernels(profile)


def test_what_a_killed_worker_had_in_hand_is_read_by_another(files: list[Path], client: Client, tmp_path: Path):
    table = read_many(files, partial(kills_once, marker=str(tmp_path / "killed")), client.get_executor())
    assert (tmp_path / "killed").exists()
    assert table["rank"].tolist() == list(range(RANKS))
    assert table["total_ns"].tolist() == [1000 * (rank + 1) for rank in range(RANKS)]


def signs_killed_once(profile: Profile, marker: str) -> pd.DataFrame:
    """`triage_signs`, but the first worker that comes to rank 5 is killed there."""
    kills_once(profile, marker)
    return triage_signs(profile)


def test_triage_of_all_ranks_outlives_a_killed_worker_and_a_damaged_file(
    files: list[Path], client: Client, tmp_path: Path
):
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X"')
    reduce = partial(signs_killed_once, marker=str(tmp_path / "killed"))
    table = read_many([*files, damaged], reduce, client.get_executor(), on_error="continue")
    assert (tmp_path / "killed").exists()
    assert [file for file, _ in table.attrs["errors"]] == [str(damaged)]
    assert as_json(triage(table)) == as_json(triage(map(read, files)))


def test_a_file_that_kills_its_workers_and_a_damaged_one_are_named(files: list[Path], client: Client, tmp_path: Path):
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X"')
    table = read_many([*files, damaged], kills_always, client.get_executor(), on_error="continue")
    assert table["rank"].tolist() == [rank for rank in range(RANKS) if rank != 5]
    messages = dict(table.attrs["errors"])
    assert list(messages) == [str(files[5]), str(damaged)]
    assert "a process ended while this" in messages[str(files[5])]
