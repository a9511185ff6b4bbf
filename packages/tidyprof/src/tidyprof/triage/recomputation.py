"""Detect gradient checkpointing, which runs forward operators again in the backward pass."""

from __future__ import annotations

import numpy as np

from tidyprof.analyses.common import (
    launch_times,
    names_matching,
    occupied,
    plain_events,
    plain_host_events,
)
from tidyprof.analyses.common import start_and_end as times_of
from tidyprof.tables.contract import DEVICE_KINDS, Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.launches import callers
from tidyprof.tables.records import PlainEvents

EVALUATION = r"autograd::engine::evaluate_function: .*"
"""The operator in which the autograd engine runs one node of the backward pass."""

REENTRANT = r"CheckpointFunctionBackward"
"""The autograd node of torch.utils.checkpoint(use_reentrant=True), which other libraries have
copied. The node runs the forward pass again, and then the backward pass of that graph.
"""

FORWARD = (
    r"aten::(linear|conv[123]d|(layer|rms|batch|group|instance)_norm|embedding"
    r"|scaled_dot_product_attention|gelu|silu|"
    r"relu_?|leaky_relu_?|elu|hardswish_?|dropout_?|(log_)?softmax|cross_entropy_loss"
    r"|max_pool[12]d|adaptive_avg_pool2d)"
)
"""Operators that models call, but that PyTorch's backward formulas (tools/autograd) don't call.

Backward formulas call lower-level operators or special backward operators. The pattern excludes
`aten::mm`, because both models and backward formulas call this operator.
"""

FEWEST_KINDS = 2
"""The minimum number of different FORWARD operators in a node that runs a piece of a model. A
custom backward function may call a single FORWARD operator.
"""

RECOMPUTING = r"torch[/\\]utils[/\\]checkpoint\.py\(\d+\): recompute_fn"
"""The Python function in which torch.utils.checkpoint(use_reentrant=False) runs the forward pass
again. The function appears only in traces with call stacks.
"""


def recomputing(profile: Profile, stacks: PlainEvents) -> Intervals:
    """Return the intervals in which the host ran forward operators again.

    - stacks: the Python functions in the trace.
    """
    operators = plain_host_events(profile, "operator")
    patterns = (EVALUATION, REENTRANT, FORWARD)
    chosen = operators[names_matching(operators, "|".join(patterns))]
    order, caller = callers(*times_of(chosen), chosen["thread"])
    chosen = chosen[order]
    begin, end = times_of(chosen)
    evaluation, reentrant, forward = (names_matching(chosen, pattern) for pattern in patterns)
    again = Intervals.empty()
    for row in np.flatnonzero(reentrant):
        # The repeated forward pass ends where the first node of the inner backward pass starts.
        backward = begin[(caller == row) & evaluation]
        stop = backward[:1] if len(backward) else end[[row]]
        again = again | Intervals.union(begin[[row]], stop)
    # A forward operator inside another one belongs to the node of the outer operator.
    while (wrong := np.flatnonzero(forward & (caller >= 0) & forward[caller])).size:
        caller[wrong] = caller[caller[wrong]]
    in_nodes = np.flatnonzero(forward & (caller >= 0) & evaluation[caller])
    for node in np.unique(caller[in_nodes]):
        inside = in_nodes[caller[in_nodes] == node]
        if len(np.unique(chosen["name"].codes[inside])) >= FEWEST_KINDS:
            again = again | Intervals.union(begin[inside[:1]], end[inside].max(keepdims=True))
    return again | occupied(stacks, names_matching(stacks, RECOMPUTING))


def recomputed(profile: Profile, stacks: PlainEvents, judged: Intervals) -> float:
    """Return the share (0 to 1) of device work that was launched while the forward pass ran again.

    Without a device, return the share of the judged host time.
    """
    again, work = recomputing(profile, stacks) & judged, plain_events(profile, DEVICE_KINDS)
    if not len(work):
        return again.length / max(judged.length, 1)
    launched, length = launch_times(work), work["duration_ns"]
    return float(
        length[again.contains(launched)].sum() / max(length[judged.contains(launched)].sum(), 1)
    )
