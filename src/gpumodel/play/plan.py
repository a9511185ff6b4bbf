"""One step of the host as a row of marks, and the work it launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpumodel.devices import Device
from gpumodel.kernels import KernelLaunch, duration_ns, launches_of
from gpumodel.play import costs
from gpumodel.play.waits import NEXT_NS, transfer_factor
from gpumodel.recording.operators import Operator
from tidyprof.errors import UserError

PAGEABLE_BANDWIDTH = 12.9e9
"""Bytes per second of copies from memory that is not pinned, for which the host waits: 12.9 and
12.8 GB/s in the two runs of AMD's article on rpd (ROCm blogs, 17 April 2024; example file in
https://github.com/ROCm/rocmProfileData).
"""

PAGEABLE_FLOOR_NS = 10_000
"""Time of the smallest such copy: the 4-byte read-backs of the 4-rank trace take 11 to 16 us."""

LOADER_NAMES = tuple(
    f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"
    for kind in ("SingleProcess", "MultiProcessing")
)
"""Names that torch gives the loader's range, without workers and with them."""


@dataclass(frozen=True)
class Stop:
    """Where the time of the host or of a stream depends on something else. It takes effect after
    the mark with this index.

    kind  -- loader (wait for a batch), late (a pathology sleeps), read (wait for the copy
             `launch`), collective (`launch` meets the other ranks), join (the compute stream waits
             for collective `launch`).
    """

    mark: int
    kind: str
    launch: int = -1


@dataclass(frozen=True)
class StepPlan:
    """A step that is played again and again. Marks, operators, calls and launches have numbers from
    0 in their order.

    cost_ns          -- [marks]: measured host time before each mark (see costs).
    call_of_mark, autograd_mark -- [marks]: whether it ends a runtime call, and whether autograd's
                        thread passes it.
    begin, end       -- [operators]: first and last mark.
    call_begin, call_end, call_names, call_operator -- [calls]: first and last mark, name, and the
                        operator that made it (-1 for none).
    launch_call, launch_operator -- [launches]: the call and the operator that made it.
    mean_ns, bound_by, delay_ns  -- [launches]: mean duration, what bounds it, and the time from the
                        end of its call to its start on an idle device.
    on_autograd      -- [operators]: whether it runs in autograd's thread.
    stops            -- in the order of their marks.
    phases           -- name of a phase -> mark at which it begins; the step ends with the last
                        mark.
    images           -- number of images in the batch.
    """

    operators: tuple[Operator, ...]
    launches: tuple[KernelLaunch, ...]
    cost_ns: NDArray[np.float64]
    call_of_mark: NDArray[np.bool_]
    autograd_mark: NDArray[np.bool_]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    call_begin: NDArray[np.int64]
    call_end: NDArray[np.int64]
    call_names: tuple[str, ...]
    call_operator: NDArray[np.int64]
    launch_call: NDArray[np.int64]
    launch_operator: NDArray[np.int64]
    mean_ns: NDArray[np.float64]
    bound_by: tuple[str, ...]
    delay_ns: NDArray[np.int64]
    on_autograd: NDArray[np.bool_]
    stops: tuple[Stop, ...]
    phases: dict[str, int]
    images: int

    @cached_property
    def is_collective(self) -> NDArray[np.bool_]:
        """[launches]: whether it runs on the stream of collectives."""
        return np.array([launch.kind == "collective" for launch in self.launches], dtype=bool)

    @cached_property
    def is_awaited(self) -> NDArray[np.bool_]:
        """[launches]: whether the host waits for it."""
        awaited = np.zeros(len(self.launches), dtype=bool)
        awaited[[stop.launch for stop in self.stops if stop.kind == "read"]] = True
        return awaited

    @cached_property
    def first_use(self) -> NDArray[np.int64]:
        """Last marks of the calls that launch a kernel of a name for the first time, where its
        library loads it.
        """
        seen: dict[str, int] = {}
        for number, launch in enumerate(self.launches):
            if launch.kind == "kernel":
                seen.setdefault(launch.name, int(self.call_end[self.launch_call[number]]))
        return np.array(sorted(seen.values()), dtype=np.int64)


def build(
    operators: Iterable[Operator],
    device: Device,
    solutions: str,
    ranks: int,
    images: int,
    workers: int | None = 2,
) -> StepPlan:
    """The plan of a step of these operators.

    solutions -- one of gpumodel.workload.SOLUTIONS.
    images    -- number of images in the batch.
    workers   -- number of the loader's workers; None leaves out all that a trainer adds, the loader
                 and the events of its step clock.
    """
    return _Builder(device, solutions, ranks).build(
        _with_loader(operators, workers), images, workers is not None
    )


def with_longer_kernels(plan: StepPlan, longer: Iterable[tuple[str, float]]) -> StepPlan:
    """The plan with other durations. longer -- pairs of a part of a kernel's name, and the factor
    for the kernels that have it.

    Raises UserError for a part that no kernel has in its name.
    """
    mean_ns = plan.mean_ns.copy()
    for part, factor in longer:
        named = np.array(
            [
                launch.kind in ("kernel", "collective") and part in launch.name
                for launch in plan.launches
            ],
            dtype=bool,
        )
        if not named.any():
            raise UserError(f"no kernel of this step has {part!r} in its name")
        mean_ns[named] *= factor
    return replace(plan, mean_ns=mean_ns)


def _with_loader(operators: Iterable[Operator], workers: int | None) -> list[Operator]:
    """The operators, with the range of the loader before them."""
    if workers is None:
        return list(operators)
    name = LOADER_NAMES[bool(workers)]
    loader = Operator(0, None, name, (), (), {"host_only": True}, phase="data")
    shifted = [
        replace(
            operator,
            index=operator.index + 1,
            parent=None if operator.parent is None else operator.parent + 1,
        )
        for operator in operators
    ]
    return [loader, *shifted]


class _Call(NamedTuple):
    """A runtime call: its name, the number of the operator that made it (-1 for none), its first
    and last mark.
    """

    name: str
    operator: int
    begin: int
    end: int


class _Launched(NamedTuple):
    """A launch with the numbers of the call and of the operator that made it."""

    launch: KernelLaunch
    call: int
    operator: int


class _Builder:
    """Walks the operators in order and sets marks."""

    def __init__(self, device: Device, solutions: str, ranks: int) -> None:
        self._device, self._solutions, self._ranks = device, solutions, ranks
        self._pending = 0.0
        self._costs: list[float] = []
        self._calls: list[_Call] = []
        self._ends_call: list[bool] = []
        self._marks_autograd: list[bool] = []
        self._launches: list[_Launched] = []
        self._stops: list[Stop] = []
        self._phases: dict[str, int] = {}
        self._collectives: list[int] = []
        self._joined = 0
        self._in_autograd = False

    def build(self, operators: list[Operator], images: int, timed: bool) -> StepPlan:
        """Walk through all operators. timed -- whether events are recorded at both ends, as the
        trainer's clock does.
        """
        self._operators = operators
        self._children: dict[int | None, list[Operator]] = defaultdict(list)
        for operator in operators:
            self._children[operator.parent].append(operator)
        self._begin = np.zeros(len(operators), dtype=np.int64)
        self._end = np.zeros(len(operators), dtype=np.int64)
        self._on_autograd = np.zeros(len(operators), dtype=bool)
        if timed:
            self._call("hipEventRecord", -1)
        for operator in self._children[None]:
            self._enter_phase(operator.phase)
            self._walk(operator, in_autograd=False)
        if timed:
            self._call("hipEventRecord", -1)
        self._mark()
        return self._finished(images)

    def _mark(self, ends_call: bool = False) -> int:
        """Set a mark after all host time since the last one; returns its number."""
        self._costs.append(max(self._pending, 1.0))
        self._ends_call.append(ends_call)
        self._marks_autograd.append(self._in_autograd)
        self._pending = 0.0
        return len(self._costs) - 1

    def _enter_phase(self, phase: str) -> None:
        if phase and phase not in self._phases:
            self._phases[phase] = self._mark()
            if phase == "forward":
                self._stops.append(Stop(self._phases[phase], "late"))

    def _walk(self, operator: Operator, in_autograd: bool) -> None:
        index = operator.index
        autograd = in_autograd or operator.name.startswith(("autograd::", "torch.distributed.ddp"))
        children = self._children[index]
        self._pending += self._gap(operator, autograd, bool(children))
        self._begin[index] = self._mark()
        self._on_autograd[index] = autograd
        if operator.name in LOADER_NAMES:
            self._stops.append(Stop(int(self._begin[index]), "loader"))
        self._join(operator)
        launches = () if children or not self._may_launch(operator) else self._launches_of(operator)
        # A trace shows how much time an operator spends itself, but not where, so that is spread
        # evenly around its children and launches.
        own = self._own_cost(operator, bool(children)) / (len(children) + len(launches) + 1)
        for child in children:
            self._pending += own
            self._walk(child, autograd)
        for launch in launches:
            self._pending += own
            self._launch(launch, operator)
        self._pending += own
        self._end[index] = self._mark()

    def _gap(self, operator: Operator, autograd: bool, has_children: bool) -> float:
        if not operator.on_device and not has_children:
            return costs.VIEW_GAP_NS
        if operator.parent is None:
            handover = costs.HANDOVER_NS if autograd != self._in_autograd else 0
            self._in_autograd = autograd
            return costs.gap_ns("autograd" if autograd else "main") + handover
        if self._operators[operator.parent].name == "DistributedDataParallel.forward":
            # Compiled code has no Python layers between its kernels.
            return (
                costs.VIEW_GAP_NS if operator.name.startswith("triton_") else costs.gap_ns("module")
            )
        return 0.0

    def _own_cost(self, operator: Operator, has_children: bool) -> float:
        if operator.name in LOADER_NAMES:
            return NEXT_NS
        if operator.name.startswith("triton_"):
            return costs.DEFAULT_NS["compiled"]
        if operator.name == "DistributedDataParallel.forward":
            # Its own time is the gaps between the operators below it.
            return costs.DEFAULT_NS["parent"]
        if "::" not in operator.name or operator.name.startswith("autograd::"):
            return costs.operator_ns(operator.name, "node")
        kind = "parent" if has_children else "leaf" if operator.on_device else "view"
        return costs.operator_ns(operator.name, kind)

    def _may_launch(self, operator: Operator) -> bool:
        return operator.on_device and not ("collective" in operator.scalars and self._ranks == 1)

    def _launches_of(self, operator: Operator) -> tuple[KernelLaunch, ...]:
        launches = launches_of(operator, self._device, self._solutions)
        if operator.scalars.get("non_blocking"):
            return tuple(replace(launch, runtime_call="hipMemcpyAsync") for launch in launches)
        return launches

    def _join(self, operator: Operator) -> None:
        """Let the compute stream wait for a collective before an operator that uses its result."""
        if "joins" in operator.scalars and self._collectives:
            joined = self._collectives[operator.scalars["joins"]]
            self._stops.append(Stop(int(self._begin[operator.index]), "join", joined))
            return
        if not self._collectives or self._joined == len(self._collectives):
            return
        if operator.name not in (
            "aten::unflatten_dense_tensors",
            "torch.distributed.ddp.reducer::copy_bucket_to_grad",
        ):
            return
        # The stream of collectives keeps its order, so the last of them is the one to wait for.
        self._joined = len(self._collectives)
        self._stops.append(Stop(int(self._begin[operator.index]), "join", self._collectives[-1]))

    def _launch(self, launch: KernelLaunch, operator: Operator) -> None:
        waits = _waits(launch, operator)
        self._call(launch.runtime_call, operator.index, len(self._launches) if waits else None)
        number = len(self._launches)
        self._launches.append(_Launched(launch, len(self._calls) - 1, operator.index))
        if launch.kind == "collective":
            self._collectives.append(number)
            self._stops.append(Stop(len(self._costs) - 1, "collective", number))

    def _call(self, name: str, operator: int, waits_for: int | None = None) -> None:
        """Add a runtime call. One that waits spends half of its own time before the wait, half
        after it.
        """
        begin = self._mark()
        cost = costs.call_ns(name)
        if waits_for is not None:
            self._pending += cost / 2
            self._stops.append(Stop(self._mark(), "read", waits_for))
            cost /= 2
        self._pending += cost
        end = self._mark(ends_call=True)
        self._calls.append(_Call(name, operator, begin, end))

    def _finished(self, images: int) -> StepPlan:
        calls, launched = self._calls, self._launches
        launches = tuple(one.launch for one in launched)
        timed = [self._duration(one.launch, one.operator) for one in launched]
        return StepPlan(
            operators=tuple(self._operators),
            launches=launches,
            cost_ns=np.array(self._costs),
            call_of_mark=np.array(self._ends_call),
            autograd_mark=np.array(self._marks_autograd),
            begin=self._begin,
            end=self._end,
            call_begin=np.array([call.begin for call in calls], dtype=np.int64),
            call_end=np.array([call.end for call in calls], dtype=np.int64),
            call_names=tuple(call.name for call in calls),
            call_operator=np.array([call.operator for call in calls], dtype=np.int64),
            launch_call=np.array([one.call for one in launched], dtype=np.int64),
            launch_operator=np.array([one.operator for one in launched], dtype=np.int64),
            mean_ns=np.array([mean for mean, _ in timed], dtype=np.float64),
            bound_by=tuple(bound for _, bound in timed),
            delay_ns=np.array(
                [costs.delay_ns(launch.runtime_call) for launch in launches], dtype=np.int64
            ),
            on_autograd=self._on_autograd,
            stops=tuple(sorted(self._stops, key=lambda stop: stop.mark)),
            phases=self._phases,
            images=images,
        )

    def _duration(self, launch: KernelLaunch, operator: int) -> tuple[float, str]:
        mean, bound = duration_ns(launch, self._device)
        if launch.kind == "collective":
            return mean * transfer_factor(launch.collective, self._ranks), bound
        if _waits(launch, self._operators[operator]):
            # A copy that the host waits for is of pageable memory, which has rates of its own.
            transfer = (launch.copy_bytes or 0) / PAGEABLE_BANDWIDTH * 1e9
            return (
                PAGEABLE_FLOOR_NS + transfer,
                "memory" if transfer > PAGEABLE_FLOOR_NS else "floor",
            )
        return mean, bound


def _waits(launch: KernelLaunch, operator: Operator) -> bool:
    """Whether the host waits for a launch: it does for copies to and from the host, unless the
    trainer asked it not to.
    """
    crosses = launch.copy_direction in ("HostToDevice", "DeviceToHost")
    return crosses and not operator.scalars.get("non_blocking", False)
