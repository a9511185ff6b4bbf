"""Played steps as the tables of gpumodel.run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cifar_train.hooks import PHASES
from gpumodel.play.engine import PlayedStep
from gpumodel.play.plan import StepPlan
from gpumodel.play.waits import Times
from gpumodel.run import TABLES, RankRun

FIRST_PROCESS_ID = 41_250
AUTOGRAD_THREAD = 806
"""Made up: the process of rank 0, and what is added to a process for its autograd thread."""

CPU_AGENTS = 2
"""The node's two processors, which ROCm numbers before the GPUs."""

COLLECTIVE_STREAM = 4
"""RCCL's stream in the 4-rank trace; its queue is the second."""

_KINETO_TYPES = {
    "float32": "float",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float64": "double",
    "int64": "long int",
    "int32": "int",
    "uint8": "unsigned char",
    "bool": "bool",
}
"""Type of torch -> the C++ name that Kineto writes."""


def rank_run(
    rank: int, steps: Sequence[PlayedStep], waits: Sequence[tuple[Times, Times]], marked: bool
) -> RankRun:
    """The tables of one rank; counters and samples are still empty.

    waits  -- synchronisations of the host outside of steps: begin and end of each, [ranks] in ns.
    marked -- whether the program marks steps and phases, as the trainer does.
    """
    process = FIRST_PROCESS_ID + 7 * rank
    run = RankRun(rank, process, process + AUTOGRAD_THREAD, device=rank, agent=rank + CPU_AGENTS)
    rows = _Rows(rank, process, run.autograd_thread_id, marked)
    run.operators = _table("operators", [rows.operators(step) for step in steps])
    calls, correlation = rows.calls(steps, waits)
    run.calls = calls
    run.device_work = rows.device_work(steps, correlation)
    if marked:
        run.annotations = _table("annotations", [rows.annotations(step) for step in steps])
        run.images_per_second = images_per_second(rank, steps)
    return run


def images_per_second(rank: int, steps: Sequence[PlayedStep]) -> tuple[float, ...]:
    """The trainer's rate of each step in images/s, between the moments at which the compute stream
    passes the step's first and last mark.
    """
    # The trainer's clock records events: a stream passes one after all work that is before it.
    # Collectives are on another stream.
    rates = []
    free = 0
    for step in steps:
        marks = step.marks[rank]
        own = ~step.plan.is_collective
        begin = max(int(marks[0]), free)
        free = int((step.start + step.duration)[rank][own].max(initial=free))
        rates.append(step.plan.images / (max(int(marks[-1]), free) - begin) * 1e9)
    return tuple(rates)


def _table(name: str, parts: Sequence[dict[str, Any]]) -> pd.DataFrame:
    frames = [pd.DataFrame(part, columns=list(TABLES[name])) for part in parts]
    table = (
        pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(TABLES[name]))
    )
    return table.astype(TABLES[name])


@dataclass
class _Rows:
    """Makes the columns of each table for one rank; identifiers count from 1 over the whole run."""

    rank: int
    process: int
    autograd_thread: int
    marked: bool
    _operators_before: int = 0

    def operators(self, step: PlayedStep) -> dict[str, Any]:
        """Rows of OPERATORS for one step."""
        plan, marks = step.plan, step.marks[self.rank]
        fixed = _operator_columns(plan)
        start = marks[plan.begin]
        before = self._operators_before
        self._operators_before += len(plan.operators)
        # In one process autograd counts on from step to step.
        sequence = fixed["sequence_number"] + step.number * (1 + fixed["highest_sequence"])
        return {
            **{
                name: fixed[name]
                for name in ("name", "phase", "module", "input_shapes", "input_types", "flops")
            },
            "operator_id": before + 1 + np.arange(len(plan.operators)),
            "parent_id": fixed["parent"] + (before + 1),
            "thread_id": np.where(plan.on_autograd, self.autograd_thread, self.process),
            "start_ns": start,
            "duration_ns": marks[plan.end] - start,
            "step": self._number(step),
            "sequence_number": sequence,
        }

    def _number(self, step: PlayedStep) -> Any:
        return step.number if self.marked else pd.NA

    def calls(
        self, steps: Sequence[PlayedStep], waits: Sequence[tuple[Times, Times]]
    ) -> tuple[pd.DataFrame, list[np.ndarray]]:
        """CALLS, and for each step the correlation ids of its calls."""
        # The tools number calls in the order of their start, whatever step or thread they belong
        # to.
        parts = []
        before = 0
        for step in steps:
            plan, marks = step.plan, step.marks[self.rank]
            operator = plan.call_operator
            on_autograd = np.where(operator >= 0, plan.on_autograd[operator], False)
            start = marks[plan.call_begin]
            identifiers = pd.array(operator + before + 1, dtype="Int64")
            identifiers[operator < 0] = pd.NA
            before += len(plan.operators)
            parts.append(
                {
                    "name": np.array(plan.call_names, dtype=object),
                    "thread_id": np.where(on_autograd, self.autograd_thread, self.process),
                    "start_ns": start,
                    "duration_ns": marks[plan.call_end] - start,
                    "operator_id": identifiers,
                }
            )
        lengths = [len(part["start_ns"]) for part in parts]
        parts += [self._wait(*wait) for wait in waits]
        table = pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True)
        order = np.argsort(table["start_ns"].to_numpy(), kind="stable")
        correlation = np.empty(len(table), dtype=np.int64)
        correlation[order] = 1 + np.arange(len(table))
        table = table.assign(correlation_id=correlation).iloc[order][list(TABLES["calls"])]
        split = np.split(correlation[: sum(lengths)], np.cumsum(lengths)[:-1])
        return table.astype(TABLES["calls"]).reset_index(drop=True), split

    def _wait(self, begin: Times, end: Times) -> dict[str, Any]:
        start = begin[self.rank]
        return {
            "name": ["hipDeviceSynchronize"],
            "thread_id": [self.process],
            "start_ns": [start],
            "duration_ns": [end[self.rank] - start],
            "operator_id": [pd.NA],
        }

    def device_work(
        self, steps: Sequence[PlayedStep], correlation: Sequence[np.ndarray]
    ) -> pd.DataFrame:
        """DEVICE_WORK, sorted by start."""
        parts = []
        before = 0
        for step, own in zip(steps, correlation, strict=True):
            plan = step.plan
            duration, waited = step.duration[self.rank], step.waited[self.rank]
            fixed = _launch_columns(plan)
            parts.append(
                {
                    **{name: fixed[name] for name in fixed if name != "bound_by"},
                    "correlation_id": own[plan.launch_call],
                    "stream": np.where(plan.is_collective, COLLECTIVE_STREAM, 0),
                    "queue": np.where(plan.is_collective, 2, 1),
                    "start_ns": step.start[self.rank],
                    "duration_ns": duration,
                    "step": self._number(step),
                    "operator_id": plan.launch_operator + before + 1,
                    "bound_by": np.where(2 * waited > duration, "waiting", fixed["bound_by"]),
                }
            )
            before += len(plan.operators)
        # Launches are numbered in their own order, and only then sorted by start.
        dispatch = 1 + np.arange(sum(len(part["start_ns"]) for part in parts))
        table = pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True).assign(
            dispatch_id=dispatch
        )
        table = table.sort_values("start_ns", kind="stable", ignore_index=True)
        return table[list(TABLES["device_work"])].astype(TABLES["device_work"])

    def annotations(self, step: PlayedStep) -> dict[str, Any]:
        """Rows of ANNOTATIONS: the step, then its phases."""
        marks = step.marks[self.rank]
        begin = [int(marks[step.plan.phases[phase]]) for phase in PHASES]
        last = int(marks[-1])
        start = np.array([marks[0], *begin], dtype=np.int64)
        end = np.array([last, *begin[1:], int(marks[-2])], dtype=np.int64)
        return {
            "name": [f"ProfilerStep#{step.number}", *PHASES],
            "thread_id": self.process,
            "start_ns": start,
            "duration_ns": end - start,
            "step": step.number,
        }


def _operator_columns(plan: StepPlan) -> dict[str, Any]:
    """Columns of OPERATORS that do not depend on times: made once for a plan, and kept in it."""
    columns = plan.__dict__.setdefault("_operator_columns", {})
    if not columns:
        operators = plan.operators
        sequence = pd.array([operator.sequence_number for operator in operators], dtype="Int64")
        columns |= {
            "name": _objects(operator.name for operator in operators),
            "phase": _objects(operator.phase for operator in operators),
            "module": _objects(operator.module for operator in operators),
            "input_shapes": _objects(_shapes(operator) for operator in operators),
            "input_types": _objects(_types(operator) for operator in operators),
            "flops": np.array([operator.flops for operator in operators]),
            "parent": pd.array([operator.parent for operator in operators], dtype="Int64"),
            "sequence_number": sequence,
            "highest_sequence": max(
                (number for number in sequence if number is not pd.NA), default=0
            ),
        }
    return columns


def _launch_columns(plan: StepPlan) -> dict[str, Any]:
    """The same for DEVICE_WORK."""
    columns = plan.__dict__.setdefault("_launch_columns", {})
    if not columns:
        launches = plan.launches
        plain = (
            "kind name vector_registers accumulation_registers scalar_registers lds_bytes"
            " scratch_bytes flops data_type matrix_cores bytes_read bytes_written copy_direction"
            " collective"
        )
        columns |= {
            name: _objects(getattr(launch, name) for launch in launches) for name in plain.split()
        }
        for place, axis in enumerate("xyz"):
            columns[f"grid_{axis}"] = [launch.grid[place] for launch in launches]
            columns[f"workgroup_{axis}"] = [launch.workgroup[place] for launch in launches]
        columns["copy_bytes"] = pd.array([launch.copy_bytes for launch in launches], dtype="Int64")
        columns["phase"] = _objects(plan.operators[index].phase for index in plan.launch_operator)
        columns["bound_by"] = _objects(plan.bound_by)
    return columns


def _objects(values: Any) -> np.ndarray:
    """An array of the values, with a tuple as one value."""
    values = list(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _shapes(operator: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(() if tensor is None else tensor.shape for tensor in operator.inputs)


def _types(operator: Any) -> tuple[str, ...]:
    return tuple(
        "" if tensor is None else _KINETO_TYPES.get(tensor.dtype, tensor.dtype)
        for tensor in operator.inputs
    )
