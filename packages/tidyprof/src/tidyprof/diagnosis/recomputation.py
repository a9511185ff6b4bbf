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
"""The node of torch.utils.checkpoint(use_reentrant=True), and of those that took it over: up to the
backward of its own graph, which it runs within, it is forward.
"""

FORWARD = (
    r"aten::(linear|conv[123]d|(layer|rms|batch|group|instance)_norm|embedding"
    r"|scaled_dot_product_attention|gelu|silu|"
    r"relu_?|leaky_relu_?|elu|hardswish_?|dropout_?|(log_)?softmax|cross_entropy_loss"
    r"|max_pool[12]d|adaptive_avg_pool2d)"
)
"""Operators that a model calls and no formula of a backward does (tools/autograd of PyTorch): those
call the parts that these consist of, or operators of their own. `aten::mm` says nothing.
"""

FEWEST_KINDS = 2
"""So many different ones in one node are a piece of a model: a backward that somebody wrote may
call one of them.
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
    found = Intervals.empty()
    for place in np.flatnonzero(reentrant):
        inner = begin[(caller == place) & evaluation]
        found = found | Intervals.union(begin[[place]], inner[:1] if len(inner) else end[[place]])
    # An operator in another one of these belongs to the node that this one belongs to.
    while (wrong := np.flatnonzero(forward & (caller >= 0) & forward[caller])).size:
        caller[wrong] = caller[caller[wrong]]
    own = np.flatnonzero(forward & (caller >= 0) & evaluation[caller])
    for node in np.unique(caller[own]):
        inside = own[caller[own] == node]
        if len(np.unique(chosen["name"].codes[inside])) >= FEWEST_KINDS:
            found = found | Intervals.union(begin[inside[:1]], end[inside].max(keepdims=True))
    return found | occupied(stacks, names_matching(stacks, RECOMPUTING))


def recomputed(profile: Profile, stacks: PlainEvents, judged: Intervals) -> float:
    """The share (0 to 1) of the devices' work that was launched then, or without a device of the
    host's judged time.
    """
    again, work = recomputing(profile, stacks) & judged, plain_events(profile, DEVICE_KINDS)
    if not len(work):
        return again.length / max(judged.length, 1)
    launched, length = launch_times(work), work["duration_ns"]
    return float(
        length[again.contains(launched)].sum() / max(length[judged.contains(launched)].sum(), 1)
    )
