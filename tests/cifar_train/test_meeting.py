"""What ranks say of each other: who is missing, who came twice, who is gone, who is silent."""

from __future__ import annotations

import threading

import pytest
from torch.distributed import HashStore

from cifar_train.launch import failure_watch, meeting
from cifar_train.launch.failure_watch import FailureWatch
from cifar_train.launch.meeting import Deadline, agree
from cifar_train.launch.ranks import Launch
from tests.patience import PATIENCE_S
from tidyprof.errors import UserError


def launch(rank: int, world_size: int) -> Launch:
    return Launch(rank, world_size, rank, "torchrun", "node1", 29500)


def verdicts(store: HashStore, *launches: Launch, seconds: float = PATIENCE_S) -> list[str]:
    """What each rank, the others beside it, is told; nothing if all is well."""
    found = [""] * len(launches)

    def meet(place: int) -> None:
        try:
            agree(store, launches[place], Deadline(seconds))
        except (UserError, ConnectionError) as error:
            found[place] = str(error)

    threads = [threading.Thread(target=meet, args=[place]) for place in range(len(launches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return found


def test_all_are_there():
    assert verdicts(HashStore(), *(launch(rank, 3) for rank in range(3))) == ["", "", ""]


def test_a_rank_number_given_twice_is_told_to_all():
    found = verdicts(HashStore(), launch(0, 3), launch(1, 3), launch(1, 3))
    assert len(set(found)) == 1
    assert "two processes came to MASTER_ADDR=node1 MASTER_PORT=29500 as rank 1" in found[0]


@pytest.mark.parametrize(
    ("world_size", "missing"),
    [(2, "rank 1"), (4, "ranks 1, 2, 3"), (999, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 990 more")],
)
def test_who_is_missing_is_named(world_size, missing):
    found = verdicts(HashStore(), launch(0, world_size), seconds=0)
    assert found == [f"1 of {world_size} ranks came; not there: {missing}"]


def test_rank_zero_does_not_wait_on_for_a_rank_that_gave_up():
    store = HashStore()
    assert verdicts(store, launch(1, 3), seconds=0) == [
        "rank 0 is there, but still waits for others"
    ]
    (found,) = verdicts(store, launch(0, 3))
    assert found == "2 of 3 ranks came; not there: rank 2, and rank 1 waits no longer"


def test_a_twin_that_comes_late_is_sent_away_alone():
    store = HashStore()
    assert verdicts(store, launch(0, 2), launch(1, 2)) == ["", ""]
    (found,) = verdicts(store, launch(1, 2))
    assert "rank 1 of 2 came to MASTER_ADDR=node1 MASTER_PORT=29500 after all the others" in found


class Ends:
    """What watches say before they end their process, which here goes on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._left = threading.Semaphore(0)

    def leave(self, code: int) -> None:
        self._left.release()

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self._left.acquire(timeout=PATIENCE_S), self.lines


@pytest.fixture
def ends(monkeypatch) -> Ends:
    ends = Ends()
    monkeypatch.setattr(failure_watch, "complain", lambda line, program: ends.lines.append(line))
    monkeypatch.setattr(failure_watch, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(meeting, "PARTING_SECONDS", 0.01)
    monkeypatch.setattr(failure_watch.os, "_exit", ends.leave)
    return ends


def test_all_ranks_hear_which_one_is_silent(ends):
    store = HashStore()
    watches = [
        FailureWatch(store, store, rank, 3, patience)
        for rank, patience in ((0, PATIENCE_S), (1, 0.1))
    ]
    ends.wait(2)
    for watch in watches:
        watch.stop()
    assert sorted(line.partition(" for ")[0] for line in ends.lines) == [
        f"rank {rank} stops because rank 2 gave no sign of life" for rank in range(2)
    ]


def test_a_start_that_takes_too_long_ends_the_process(ends):
    store = HashStore()
    watch = FailureWatch(store, store, 1, 2, PATIENCE_S)
    with watch.starting(Deadline(0)):
        ends.wait(1)
    watch.stop()
    assert len(ends.lines) == 1
    assert "rank 1 stops because the ranks have met, but could not connect" in ends.lines[0]
