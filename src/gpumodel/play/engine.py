"""Plays steps: plans in, times of every mark and every launch out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpumodel.play.costs import Watching
from gpumodel.play.plan import StepPlan, Stop
from gpumodel.play.waits import EXIT_SKEW_NS, GATHER, Times, in_order, meet

HOST_JITTER = 0.25
"""Spread (sigma of a lognormal distribution) of one host cost: about that of operators of one name
in the 4-rank trace.
"""


@dataclass(frozen=True)
class HostSpread:
    """Spread (sigma of a lognormal distribution) of a thread's speed: between ranks, and between
    steps of one rank.
    """

    rank: float
    step: float


ALONE = {"main": HostSpread(0.0, 0.02), "autograd": HostSpread(0.0, 0.02)}
"""One process on the node: rates of steps 5 to 20 differ by 2 percent in AMD's listing of one GPU
(see costs.UNWATCHED).
"""

TOGETHER = {"main": HostSpread(0.052, 0.044), "autograd": HostSpread(0.137, 0.139)}
"""Several processes: duration of DistributedDataParallel.forward and of the backward pass on the
hosts of the 4-rank trace, 4 ranks times 3 steps (12 to 15 ms, and 15 to 27 ms). Without a profiler
it is taken to be the same.
"""

DEVICE_JITTER = 0.04
"""Spread (sigma) of the duration of equal kernels: an assumption."""

SETUP_NS = 433_000_000
"""Extra time of the first step, for loading libraries and MIOpen's search: 453 ms for step 0
against 20 ms later, in AMD's listing of one GPU (see costs.UNWATCHED).
"""

COLLECTIVE_SETUP_NS = 169_000_000
"""Extra time of the first step with several ranks: 622 ms for step 0 of the parallel run in the
same place.
"""

SETUP_JITTER = 0.1
"""Spread of the set-up between ranks: an assumption."""

SYNCHRONISE_NS = 10_000
"""A synchronisation that has nothing to wait for: hipDeviceSynchronize in the 4-rank trace."""


@dataclass
class PlayedStep:
    """Times of one step on all ranks, in ns.

    marks        -- [ranks, marks]. start, duration -- [ranks, launches].
    waited       -- [ranks, launches]: how long a collective waited for other ranks.
    loader_ns    -- [ranks]: how long the trainer waited for the batch.
    synchronised -- begin and end, [ranks] each, of a wait for the device before the step, if any.
    """

    number: int
    plan: StepPlan
    marks: Times
    start: Times
    duration: Times
    waited: Times
    loader_ns: Times
    synchronised: tuple[Times, Times] | None = None


@dataclass
class Clock:
    """How far every rank has come, [ranks] in ns: its host, its compute stream, and the stream of
    its collectives.
    """

    host: Times
    compute: Times
    communication: Times


@dataclass
class Conditions:
    """What acts on the host of each rank.

    watching  -- step -> what the tool does to the host in it.
    loader_ns -- rank, images, now (ns) -> how long it waits for a batch, in ns.
    late_ns   -- step -> how long each rank sleeps before the forward pass, [ranks] in ns.
    synchronise_before -- steps before which the host waits for the device.
    setup     -- whether the first step loads libraries.
    """

    watching: Callable[[int], Watching]
    loader_ns: Callable[[int, int, int], int]
    late_ns: Callable[[int], Times]
    synchronise_before: frozenset[int] = frozenset()
    setup: bool = True


@dataclass
class Engine:
    """Plays step after step on `ranks` ranks; the random numbers are drawn in a fixed order."""

    ranks: int
    random: np.random.Generator
    conditions: Conditions
    clock: Clock
    _slowness: dict[str, NDArray[np.float64]] = field(init=False)

    def __post_init__(self) -> None:
        self._spread = TOGETHER if self.ranks > 1 else ALONE
        self._slowness = {
            thread: self._draw(spread.rank) for thread, spread in self._spread.items()
        }

    def _draw(self, sigma: float) -> NDArray[np.float64]:
        """Lognormal factors with mean 1, [ranks]."""
        return np.exp(self.random.normal(-(sigma**2) / 2, sigma, self.ranks))

    def play(self, plans: Sequence[StepPlan]) -> list[PlayedStep]:
        """Play all steps in order; returns their times."""
        return [self._step(number, plan) for number, plan in enumerate(plans)]

    def _step(self, number: int, plan: StepPlan) -> PlayedStep:
        shape = (self.ranks, len(plan.launches))
        synchronised = self._synchronise() if number in self.conditions.synchronise_before else None
        step = PlayedStep(
            number=number,
            plan=plan,
            marks=np.zeros((self.ranks, len(plan.cost_ns)), dtype=np.int64),
            start=np.zeros(shape, dtype=np.int64),
            duration=self._durations(plan),
            waited=np.zeros(shape, dtype=np.int64),
            loader_ns=np.zeros(self.ranks, dtype=np.int64),
            synchronised=synchronised,
        )
        host_cost = self._host_costs(number, plan)
        # Between two stops the host depends on nothing, so all its marks are passed at once.
        begin = 0
        for stop in (*plan.stops, None):
            end = len(plan.cost_ns) if stop is None else stop.mark + 1
            self._advance(step, host_cost, begin, end)
            if stop is not None:
                self._stop(step, stop)
            begin = end
        return step

    def _host_costs(self, number: int, plan: StepPlan) -> Times:
        """Host time before each mark, [ranks, marks] in ns, with jitter, what the tool adds, and
        the set-up.
        """
        watching = self.conditions.watching(number)
        shape = (self.ranks, len(plan.cost_ns))
        jitter = np.exp(self.random.normal(-(HOST_JITTER**2) / 2, HOST_JITTER, shape))
        main, autograd = (
            self._slowness[name] * self._draw(spread.step) for name, spread in self._spread.items()
        )
        whole = np.where(plan.autograd_mark, autograd[:, None], main[:, None])
        cost = plan.cost_ns * watching.factor * jitter * whole
        cost[:, plan.call_of_mark] += watching.call_ns
        if number == 0 and self.conditions.setup:
            setup = np.exp(self.random.normal(0.0, SETUP_JITTER, (2, self.ranks, 1)))
            # Libraries load a kernel at its first use; the communicator is made for the first
            # collective.
            if len(plan.first_use):
                cost[:, plan.first_use] += SETUP_NS * setup[0] / len(plan.first_use)
            meeting = [stop.mark for stop in plan.stops if stop.kind == "collective"][:1]
            cost[:, meeting] += COLLECTIVE_SETUP_NS * setup[1]
        return np.maximum(np.rint(cost), 1).astype(np.int64)

    def _durations(self, plan: StepPlan) -> Times:
        shape = (self.ranks, len(plan.launches))
        jitter = np.exp(self.random.normal(-(DEVICE_JITTER**2) / 2, DEVICE_JITTER, shape))
        return np.maximum(np.rint(plan.mean_ns * jitter), 1).astype(np.int64)

    def _advance(self, step: PlayedStep, cost: Times, begin: int, end: int) -> None:
        """Let the host pass the marks from `begin` to before `end`; the compute stream gets what it
        launches there.
        """
        if begin == end:
            return
        step.marks[:, begin:end] = self.clock.host[:, None] + np.cumsum(cost[:, begin:end], axis=1)
        self.clock.host = step.marks[:, end - 1].copy()
        plan = step.plan
        called = plan.call_end[plan.launch_call]
        chosen = np.flatnonzero(
            (called >= begin) & (called < end) & ~plan.is_collective & ~plan.is_awaited
        )
        self._queue(step, chosen, step.marks[:, called[chosen]] + plan.delay_ns[chosen])

    def _queue(self, step: PlayedStep, chosen: NDArray[np.int64], ready: Times) -> None:
        if not len(chosen):
            return
        duration = step.duration[:, chosen]
        step.start[:, chosen] = in_order(ready, duration, self.clock.compute)
        self.clock.compute = step.start[:, chosen[-1]] + duration[:, -1]

    def _stop(self, step: PlayedStep, stop: Stop) -> None:
        clock = self.clock
        if stop.kind == "read":
            # The stream keeps its order, so a read-back waits for all work before it.
            self._queue(step, np.array([stop.launch]), clock.host[:, None])
            clock.host = np.maximum(clock.host, clock.compute)
        elif stop.kind == "collective":
            self._meet(step, stop.launch)
        elif stop.kind == "join":
            end = step.start[:, stop.launch] + step.duration[:, stop.launch]
            clock.compute = np.maximum(clock.compute, end)
        elif stop.kind == "late":
            clock.host = clock.host + self.conditions.late_ns(step.number)
        elif stop.kind == "loader":
            for rank in range(self.ranks):
                step.loader_ns[rank] = self.conditions.loader_ns(
                    rank, step.plan.images, int(clock.host[rank])
                )
            clock.host = clock.host + step.loader_ns

    def _meet(self, step: PlayedStep, launch: int) -> None:
        """A collective starts on its own stream, after all that its rank has computed before. Only
        a gather does not wait for that, since parameters are there already.
        """
        plan, clock = step.plan, self.clock
        kind = plan.launches[launch].collective
        ready = step.marks[:, plan.call_end[plan.launch_call[launch]]] + plan.delay_ns[launch]
        entry = np.maximum(ready, clock.communication)
        if kind != GATHER:
            entry = np.maximum(entry, clock.compute)
        skew = self.random.integers(0, EXIT_SKEW_NS, self.ranks)
        end, step.waited[:, launch] = meet(kind, entry, step.duration[:, launch], skew)
        step.start[:, launch] = entry
        step.duration[:, launch] = end - entry
        clock.communication = end

    def _synchronise(self) -> tuple[Times, Times]:
        """Let the host wait for all work of its device; returns begin and end of the wait, [ranks]
        in ns each.
        """
        begin = self.clock.host
        done = np.maximum(self.clock.compute, self.clock.communication)
        self.clock.host = np.maximum(begin, done) + SYNCHRONISE_NS
        return begin, self.clock.host

    def finish(self) -> tuple[Times, Times]:
        """Wait for the device at the end of the run; returns begin and end of the wait, [ranks] in
        ns each.
        """
        return self._synchronise()
