"""What torch.compile makes of a step: chains of small operators become one kernel each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gpumodel.recording.operators import Operator, TensorInfo
from gpumodel.recording.recorder import ACCUMULATE, Recorded

KEPT_PREFIXES = (
    *(
        "aten::miopen_convolution",
        "aten::convolution_backward",
        "aten::_flash_attention",
        "aten::_efficient_attention",
    ),
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::max_pool2d"),
)
"""Operators that the compiler leaves to a library; for all others in the model it writes kernels.
"""

REDUCING = ("batch_norm", "layer_norm", "softmax", "sum", "mean", "norm", "amax", "var")
"""Words in the names of operators that reduce: their kernels are named triton_red_..., all others
triton_poi_... (https://github.com/pytorch/pytorch/blob/main/torch/_inductor/codegen/triton.py).
"""

_COMPILER_NAMES = {
    "aten::copy_": "_to_copy",
    "aten::clamp_min": "relu",
    "aten::miopen_batch_norm": "_native_batch_norm_legit_functional",
    "aten::native_batch_norm": "_native_batch_norm_legit_functional",
    "aten::miopen_batch_norm_backward": "native_batch_norm_backward",
}
"""Operator -> what the compiler calls it, where a GPU build or eager mode has another name."""

WORDS_IN_NAME = 6
"""Inductor puts all operators into a kernel's name; here a name with more of them is cut."""


@dataclass
class _Group:
    """Leaf operators that become one kernel. reads, writes -- numbers of their storages."""

    members: list[int] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def touches(self, reads: Iterable[int]) -> bool:
        """Whether an operator with these inputs belongs to the group: it uses what that reads or
        makes.
        """
        return not self.members or bool((self.reads | self.writes) & set(reads))


@dataclass
class _Node:
    """An operator of the compiled step and the operators that it calls."""

    operator: Operator
    children: list[_Node] = field(default_factory=list)

    def contains(self, name: str) -> bool:
        """Whether it, or an operator below it, has this name."""
        return self.operator.name == name or any(child.contains(name) for child in self.children)


def fuse(recorded: Recorded) -> tuple[Operator, ...]:
    """The operators after compilation: the model's layers are gone, its small operators are fused.

    Neighbouring operators of the model that share a tensor become one; a matrix product,
    convolution, attention or collective between them keeps them apart. Loss, gradient exchange and
    optimizer stay as they are. The backward graph is cut where a gradient bucket is full, as
    torch.compile does for DistributedDataParallel
    (https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/backends/distributed.py).
    """
    roots = _kept(recorded)
    result: list[Operator] = []
    for root in _in_compiled_order(roots):
        _flatten(root, None, result)
    return tuple(result)


def _kept(recorded: Recorded) -> list[_Node]:
    """The operators that remain, as trees: a fused operator stands where its first member stood."""
    reads, writes = recorded.reads, recorded.writes
    groups = _groups(recorded.operators, reads, writes)
    number = {group.members[0]: place for place, group in enumerate(groups)}
    inside = {member for group in groups for member in group.members}
    parents = {operator.parent for operator in recorded.operators}
    last_read = {read: index for index, numbers in enumerate(reads) for read in numbers}
    roots: list[_Node] = []
    node_of: dict[int, _Node | None] = {}
    for operator in recorded.operators:
        above = None if operator.parent is None else node_of[operator.parent]
        if operator.index in number:
            place = number[operator.index]
            node = _Node(_fused(recorded, groups[place], last_read, place))
        elif operator.index in inside or (_in_model(operator) and _is_layer(operator, parents)):
            node_of[operator.index] = above
            continue
        else:
            node = _Node(operator)
        node_of[operator.index] = node
        (roots if above is None else above.children).append(node)
    return roots


def _in_model(operator: Operator) -> bool:
    return bool(operator.module) and operator.phase in ("forward", "backward")


def _is_layer(operator: Operator, parents: set[int | None]) -> bool:
    """Whether an operator of the model only calls others, or is a view: the compiler keeps
    neither.
    """
    return operator.index in parents or not operator.on_device


def _in_compiled_order(roots: list[_Node]) -> list[_Node]:
    """The same trees, with each run of compiled operators below one call of the compiled graph. Its
    gradients come after the graph.
    """
    ordered: list[_Node] = []
    compiled: list[_Node] = []
    waiting: list[_Node] = []
    for root in roots:
        if root.operator.name == "DistributedDataParallel.forward":
            root.children = _forward_region(root.children)
            ordered.append(root)
        elif _in_model(root.operator):
            compiled.append(root)
        elif compiled and ACCUMULATE in root.operator.name:
            waiting.append(root)
            if root.contains("nccl:all_reduce"):
                ordered += [_backward_region(compiled), *waiting]
                compiled, waiting = [], []
        else:
            ordered += [*([_backward_region(compiled)] if compiled else []), *waiting, root]
            compiled, waiting = [], []
    return ordered


def _forward_region(children: list[_Node]) -> list[_Node]:
    own = [child for child in children if _in_model(child.operator)]
    others = [child for child in children if not _in_model(child.operator)]
    inner = _above("CompiledFunction", own)
    return [*others, _above("Torch-Compiled Region: 0/0", [inner])]


def _backward_region(own: list[_Node]) -> _Node:
    inner = _above("CompiledFunctionBackward", own)
    return _above("autograd::engine::evaluate_function: CompiledFunctionBackward", [inner])


def _above(name: str, children: list[_Node]) -> _Node:
    phase = children[0].operator.phase
    return _Node(Operator(0, None, name, (), (), {"host_only": True}, phase=phase), children)


def _flatten(node: _Node, parent: int | None, result: list[Operator]) -> None:
    index = len(result)
    result.append(replace(node.operator, index=index, parent=parent))
    for child in node.children:
        _flatten(child, index, result)


def _groups(
    operators: list[Operator], reads: list[frozenset[int]], writes: list[frozenset[int]]
) -> list[_Group]:
    """Groups in order. Only one is open at a time, since the compiler keeps the order of operators
    that depend on each other.
    """
    parents = {operator.parent for operator in operators}
    groups = [_Group()]
    for operator in operators:
        if operator.index in parents or not operator.on_device or not operator.outputs:
            continue
        own_reads, own_writes = reads[operator.index], writes[operator.index]
        small = _in_model(operator) and not operator.name.startswith(KEPT_PREFIXES)
        if not small or not groups[-1].touches(own_reads):
            groups.append(_Group())
        if small:
            groups[-1].members.append(operator.index)
            groups[-1].reads |= own_reads - groups[-1].writes
            groups[-1].writes |= own_writes
    return [group for group in groups if group.members]


def _fused(recorded: Recorded, group: _Group, last_read: dict[int, int], number: int) -> Operator:
    members = [recorded.operators[index] for index in group.members]
    reducing = any(word in member.name for member in members for word in REDUCING)
    # Inductor, too, names a kernel after its operators in alphabetical order.
    words = sorted({_word(member.name) for member in members})[:WORDS_IN_NAME]
    return replace(
        members[0],
        name=f"triton_{'red' if reducing else 'poi'}_fused_{'_'.join(words)}_{number}",
        inputs=_outer_inputs(recorded, group),
        outputs=_kept_outputs(recorded, group, last_read),
        scalars={"fused": tuple(member.name for member in members)},
    )


def _word(name: str) -> str:
    return _COMPILER_NAMES.get(name, name.removeprefix("aten::"))


def _outer_inputs(recorded: Recorded, group: _Group) -> tuple[TensorInfo, ...]:
    """Tensors that the kernel reads from memory: those that no earlier member made, each once."""
    made: set[int] = set()
    found: dict[tuple[frozenset[int], TensorInfo], None] = {}
    for index in group.members:
        operator = recorded.operators[index]
        for numbers, tensor in zip(recorded.input_numbers[index], operator.inputs, strict=True):
            if tensor is not None and not numbers & made:
                found[numbers, tensor] = None
        made |= frozenset().union(*recorded.output_numbers[index])
    return tuple(tensor for _, tensor in found)


def _kept_outputs(
    recorded: Recorded, group: _Group, last_read: dict[int, int]
) -> tuple[TensorInfo, ...]:
    """Tensors that an operator outside of the group reads later, and the last one in any case."""
    end = group.members[-1]
    kept = []
    for index in group.members:
        for tensor, numbers in zip(
            recorded.operators[index].outputs, recorded.output_numbers[index], strict=True
        ):
            if index == end or any(last_read.get(number, -1) > end for number in numbers):
                kept.append(tensor)
    return tuple(kept)
