"""The forward operators that run once more inside of backward: gradient checkpointing, by the marks
that it leaves.
"""

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
"""An operator in which the engine of autograd runs one node of backward."""

REENTRANT = r"CheckpointFunctionBackward"
"""The node of torch.utils.checkpoint(use_reentrant=True), and of libraries that took it over. It
runs forward again, and then the backward of that graph, within itself.
"""

FORWARD = (
    r"aten::(linear|conv[123]d|(layer|rms|batch|group|instance)_norm|embedding"
    r"|scaled_dot_product_attention|gelu|silu|"
    r"relu_?|leaky_relu_?|elu|hardswish_?|dropout_?|(log_)?softmax|cross_entropy_loss"
    r"|max_pool[12]d|adaptive_avg_pool2d)"
)
"""Operators that a model calls and that no formula of a backward calls (tools/autograd of PyTorch):
formulas call the parts that these consist of, or operators made for backward. `aten::mm` tells
nothing.
"""

FEWEST_KINDS = 2
"""So many different FORWARD operators in one node are a piece of a model: a backward that somebody
wrote may call one of them.
"""

RECOMPUTING = r"torch[/\\]utils[/\\]checkpoint\.py\(\d+\): recompute_fn"
"""The Python function in which torch.utils.checkpoint(use_reentrant=False) runs forward again,
where stacks tell.
"""


def recomputing(profile: Profile, stacks: PlainEvents) -> Intervals:
    """When the host ran forward operators again. stacks -- its Python functions."""
    operators = plain_host_events(profile, "operator")
    patterns = (EVALUATION, REENTRANT, FORWARD)
    chosen = operators[names_matching(operators, "|".join(patterns))]
    order, caller = callers(*times_of(chosen), chosen["thread"])
    chosen = chosen[order]
    begin, end = times_of(chosen)
    evaluation, reentrant, forward = (names_matching(chosen, pattern) for pattern in patterns)
    again = Intervals.empty()
    for row in np.flatnonzero(reentrant):
        # The first node of the backward within ends what is run forward again.
        backward = begin[(caller == row) & evaluation]
        stop = backward[:1] if len(backward) else end[[row]]
        again = again | Intervals.union(begin[[row]], stop)
    # A forward operator inside of another one belongs to the node of the outer one.
    while (wrong := np.flatnonzero(forward & (caller >= 0) & forward[caller])).size:
        caller[wrong] = caller[caller[wrong]]
    in_nodes = np.flatnonzero(forward & (caller >= 0) & evaluation[caller])
    for node in np.unique(caller[in_nodes]):
        inside = in_nodes[caller[in_nodes] == node]
        if len(np.unique(chosen["name"].codes[inside])) >= FEWEST_KINDS:
            again = again | Intervals.union(begin[inside[:1]], end[inside].max(keepdims=True))
    return again | occupied(stacks, names_matching(stacks, RECOMPUTING))


def recomputed(profile: Profile, stacks: PlainEvents, judged: Intervals) -> float:
    """The share (0 to 1) of the devices' work that was launched while forward ran again; without a
    device, of the host's judged time.
    """
    again, work = recomputing(profile, stacks) & judged, plain_events(profile, DEVICE_KINDS)
    if not len(work):
        return again.length / max(judged.length, 1)
    launched, length = launch_times(work), work["duration_ns"]
    return float(
        length[again.contains(launched)].sum() / max(length[judged.contains(launched)].sum(), 1)
    )
