"""Writes down every operator that PyTorch dispatches, with the parents that Kineto would show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gpumodel.recording.operators import (
    HOST_ONLY,
    IGNORED,
    READS_BACK,
    Operator,
    TensorInfo,
    parents_and_leaf,
)

CONVOLUTIONS = frozenset({"aten::convolution", "aten::convolution_backward"})

ACCUMULATE = "torch::autograd::AccumulateGrad"
"""Name of the autograd node that puts a gradient into a parameter."""

LONGEST_LIST = 12
"""List arguments up to this length are kept, such as strides and output masks; longer ones are
dropped.
"""


@dataclass
class Recorded:
    """Operators, and for each of them the storages behind its inputs and outputs: sets of numbers,
    one set per tensor.
    """

    operators: list[Operator] = field(default_factory=list)
    input_numbers: list[tuple[frozenset[int], ...]] = field(default_factory=list)
    output_numbers: list[tuple[frozenset[int], ...]] = field(default_factory=list)

    @property
    def reads(self) -> list[frozenset[int]]:
        """For each operator all storages that it reads."""
        return [frozenset().union(*numbers) for numbers in self.input_numbers]

    @property
    def writes(self) -> list[frozenset[int]]:
        """For each operator all storages that it writes."""
        return [frozenset().union(*numbers) for numbers in self.output_numbers]


class ValuelessReads(TorchDispatchMode):
    """Lets a step run on meta tensors although it reads numbers back: each number is 0."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run the operator, or answer for it."""
        return 0.0 if _without_value(func, args) else func(*args, **(kwargs or {}))


def _without_value(func: Any, args: tuple) -> bool:
    return func._schema.name in READS_BACK and args[0].device.type == "meta"


class OperatorRecorder(TorchDispatchMode):
    """Records while it is entered. Set `phase` and `modules` from outside; `group` opens a parent.

    modules            -- stack of the paths of the layers that run at the moment.
    keep_channels_last -- whether convolutions keep inputs that lie in NHWC order, as in a PyTorch
        that suggests this order to MIOpen (PYTORCH_MIOPEN_SUGGEST_NHWC); else they first put them
        into NCHW order.
    """

    def __init__(self, keep_channels_last: bool = False) -> None:
        super().__init__()
        self._keep_channels_last = keep_channels_last
        self.recorded = Recorded()
        self.phase = ""
        self.modules: list[str] = []
        self._open: list[int] = []
        self._node: Any = None
        self._node_parents = 0
        self._module_of_sequence: dict[int, str] = {}
        self._normalised_by_miopen: set[int | None] = set()
        self._last_sequence = torch.autograd._get_sequence_nr()
        # The number of a freed storage could be given out again, so all storages are kept; those of
        # meta tensors take no memory.
        self._storages: dict[int, Any] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run the operator and write it down."""
        kwargs = kwargs or {}
        name = func._schema.name
        # A meta tensor has no value; where the trainer asks, 0 means that no gradient is infinite.
        result = 0.0 if _without_value(func, args) else func(*args, **kwargs)
        if name == "aten::convolution" and self._keep_channels_last and is_channels_last(args[0]):
            # A meta tensor loses the order here, which MIOpen keeps.
            result = result.contiguous(memory_format=torch.channels_last)
        node = torch._C._current_autograd_node()
        if self._is_shown(name, node):
            self.enter_node(node)
            self._write_down(func, name, args, kwargs, result)
        return result

    def _is_shown(self, name: str, node: Any) -> bool:
        if name == "aten::detach" and self.phase in ("forward", "backward"):
            # The recording itself detaches the tensors that autograd keeps. A trace has a detach
            # only where a gradient is put into its parameter.
            return node is not None and node.name() == ACCUMULATE
        return name.startswith("aten::") and name not in IGNORED

    def enter_node(self, node: Any) -> None:
        """Open the parents of an autograd node, unless they are open already, and close those of
        the node before.
        """
        if self._node is None and node is None:
            return
        if self._node is not None and node is not None and _same_node(node, self._node):
            return
        self.leave_node()
        if node is None:
            return
        number = node._sequence_nr() if node.name() != ACCUMULATE else None
        module = self._module_of_sequence.get(number, "")
        title = node.name()
        if title == "NativeBatchNormBackward0" and number in self._normalised_by_miopen:
            title = "MiopenBatchNormBackward0"
        for name in (f"autograd::engine::evaluate_function: {title}", title):
            self.open(name, sequence_number=number, module=module)
        self._node, self._node_parents = node, 2

    def leave_node_itself(self) -> None:
        """Close the node, but not yet the engine's call around it, in which hooks run."""
        self.close()
        self._node_parents = 1

    def leave_node(self) -> None:
        """Close the parents of the autograd node that is open, if any."""
        if self._node is not None:
            for _ in range(self._node_parents):
                self.close()
            self._node = None

    def open(self, name: str, inputs: Iterable[Any] = (), **values: Any) -> None:
        """Begin a parent; it has called all that follows until `close`."""
        values.setdefault("scalars", {"host_only": True})
        self._open.append(self.add(name, inputs, **values))

    def close(self) -> None:
        """End the innermost parent."""
        self._open.pop()

    @contextmanager
    def group(self, name: str, inputs: Iterable[Any] = ()) -> Iterator[None]:
        """A parent around the block."""
        self.open(name, inputs)
        try:
            yield
        finally:
            self.close()

    def add(
        self, name: str, inputs: Iterable[Any] = (), outputs: Iterable[Any] = (), **values: Any
    ) -> int:
        """Write down one operator below the open parent and return its index. values -- more fields
        of Operator.
        """
        inputs, outputs = tuple(inputs), tuple(outputs)
        index = len(self.recorded.operators)
        values.setdefault("module", self.modules[-1] if self.modules else self._module_of_node())
        self.recorded.operators.append(
            Operator(
                index=index,
                parent=self._open[-1] if self._open else None,
                name=name,
                inputs=tuple(None if tensor is None else describe(tensor) for tensor in inputs),
                outputs=tuple(describe(tensor) for tensor in outputs),
                phase=self.phase,
                **values,
            )
        )
        self.recorded.input_numbers.append(tuple(map(self._numbers, inputs)))
        self.recorded.output_numbers.append(tuple(map(self._numbers, outputs)))
        return index

    def _module_of_node(self) -> str:
        return (
            self.recorded.operators[self._open[-1]].module
            if self._open and self._node is not None
            else ""
        )

    def _write_down(self, func: Any, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        inputs, scalars = split_arguments(func, args, kwargs)
        # For options that are off, some operators return empty tensors.
        outputs = [tensor for tensor in _tensors(result) if tensor.numel()]
        if name in CONVOLUTIONS and not self._keep_channels_last:
            inputs = [self._rearranged(tensor) for tensor in inputs]
        if name == "aten::nll_loss_backward":
            self._fill_with_zeros(outputs[0])
        if name in ("aten::_to_copy", "aten::clone"):
            inputs = [outputs[0], inputs[0]]
        if name in ("aten::_to_copy", "aten::clone", "aten::copy_"):
            scalars |= _direction(*inputs[:2])
        if name in HOST_ONLY or _all_on_host(inputs, outputs):
            scalars["host_only"] = True
        if name == "aten::add" and self._node is not None:
            # Two gradients of one tensor: without a recording the engine adds them in place.
            name = "aten::add_"
        parents, leaf = parents_and_leaf(name, inputs)
        sequence = self._sequence_number()
        if leaf == "aten::miopen_batch_norm":
            self._normalised_by_miopen.add(sequence)
        for parent in parents:
            self.open(parent, inputs, sequence_number=sequence)
        index = self.add(leaf, inputs, outputs, scalars=scalars, sequence_number=sequence)
        for _ in parents:
            self.close()
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            flops = float(count(*args, **kwargs, out_val=result))
            self.recorded.operators[index] = replace(self.recorded.operators[index], flops=flops)

    def _fill_with_zeros(self, tensor: Any) -> None:
        self.open("aten::zero_", [tensor])
        self.add("aten::fill_", [tensor], [tensor])
        self.close()

    def _rearranged(self, tensor: Any) -> Any:
        """The tensor in NCHW order; the copy that this takes is written down."""
        if tensor is None or not is_channels_last(tensor):
            return tensor
        ordered = tensor.contiguous()
        self.open("aten::contiguous", [tensor])
        self.open("aten::clone", [tensor])
        self.add("aten::copy_", [ordered, tensor], [ordered])
        self.close()
        self.close()
        return ordered

    def _sequence_number(self) -> int | None:
        """Number of the autograd node that was made for the operator now dispatched; None if none
        was made.
        """
        if self._node is not None:
            return None
        last, self._last_sequence = self._last_sequence, torch.autograd._get_sequence_nr()
        if self._last_sequence == last:
            return None
        number = self._last_sequence - 1
        self._module_of_sequence[number] = self.modules[-1] if self.modules else ""
        return number

    def _numbers(self, tensor: Any) -> frozenset[int]:
        if not isinstance(tensor, torch.Tensor):
            return frozenset()
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        return frozenset({storage._cdata})


def _same_node(one: Any, other: Any) -> bool:
    if one.name() != other.name():
        return False
    # All nodes that accumulate gradients have the same number. Their hooks tell them apart (see
    # gradient_exchange).
    return one._sequence_nr() == other._sequence_nr()


def describe(tensor: Any) -> TensorInfo:
    """Shape, type and memory order of a tensor."""
    return TensorInfo(
        tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), is_channels_last(tensor)
    )


def is_channels_last(tensor: Any) -> bool:
    """Whether a tensor lies in NHWC order and not in NCHW order as well."""
    return (
        tensor.dim() == 4
        and not tensor.is_contiguous()
        and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def split_arguments(func: Any, args: tuple, kwargs: dict) -> tuple[list[Any], dict[str, Any]]:
    """A call's tensors in order (lists unrolled, None where one is absent), and its other arguments
    by name.
    """
    inputs: list[Any] = []
    scalars: dict[str, Any] = {}
    lengths: list[int] = []
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if isinstance(value, list | tuple) and any(
            isinstance(item, torch.Tensor) for item in value
        ):
            inputs += list(value)
            lengths.append(len(value))
        elif isinstance(value, torch.Tensor):
            inputs.append(value)
        elif value is None and "Tensor" in str(argument.type):
            inputs.append(None)
        elif value is not None:
            scalars[argument.name] = _plain(value)
    if lengths:
        scalars["lists"] = tuple(lengths)
    return inputs, {name: value for name, value in scalars.items() if value is not None}


def _plain(value: Any) -> Any:
    """A value that is the same in another process: numbers and texts, no objects of torch; None for
    all others.
    """
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        # A list with a number for each parameter is of no use in choosing a kernel.
        return tuple(_plain(item) for item in value) if len(value) <= LONGEST_LIST else None
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return None


def _tensors(result: Any) -> Iterator[Any]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, list | tuple):
        for item in result:
            yield from _tensors(item)


def _all_on_host(inputs: list[Any], outputs: list[Any]) -> bool:
    tensors = [tensor for tensor in (*inputs, *outputs) if tensor is not None]
    return bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors)


def _direction(target: Any, source: Any) -> dict[str, str]:
    """The direction of a plain memory copy, or nothing where a kernel must convert or reorder.

    As in PyTorch, equal types and strides make it a memory copy; everything else takes a kernel
    (https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/Copy.cu).
    """
    if target.device != source.device:
        return {"direction": "DeviceToHost" if target.device.type == "cpu" else "HostToDevice"}
    if target.dtype == source.dtype and target.stride() == source.stride() and _is_dense(source):
        return {"direction": "DeviceToDevice"}
    return {}


def _is_dense(tensor: Any) -> bool:
    return tensor.is_contiguous() or is_channels_last(tensor)
