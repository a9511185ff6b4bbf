"""DistributedDataParallel's own operators: broadcast of buffers, gradient buckets, copies back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gpumodel.recording.recorder import OperatorRecorder

FIRST_BUCKET_BYTES = 1024 * 1024
BUCKET_BYTES = 25 * 1024 * 1024
"""Limits of DDP's buckets: bucket_cap_mb is 25
(https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html), and
the first bucket is smaller, so that the exchange starts early
(torch.distributed._DEFAULT_FIRST_BUCKET_BYTES).
"""


def bucket_sizes(sizes: Sequence[int]) -> list[list[int]]:
    """Places of the gradients in each bucket. sizes -- bytes of the gradients, in the order in
    which they become ready.

    A bucket is closed by the gradient that reaches its limit
    (https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/reducer.cpp,
    compute_bucket_assignment_by_size).
    """
    buckets: list[list[int]] = [[]]
    filled = 0
    for place, size in enumerate(sizes):
        buckets[-1].append(place)
        filled += size
        if filled >= (FIRST_BUCKET_BYTES if len(buckets) == 1 else BUCKET_BYTES):
            buckets.append([])
            filled = 0
    return [bucket for bucket in buckets if bucket]


class GradientExchange:
    """Adds DistributedDataParallel's operators to a recording.

    order  -- parameters in the order in which their gradients become ready, on which DDP settles
              after its first step; or in reverse order of definition, where DDP searches for unused
              parameters.
    unused -- parameters that get no gradient at all.
    """

    def __init__(
        self,
        recorder: OperatorRecorder,
        model: Any,
        order: Sequence[Any],
        unused: Sequence[Any] = (),
    ) -> None:
        self._recorder = recorder
        self._buffers: dict[torch.dtype, list[Any]] = {}
        for buffer in model.buffers():
            self._buffers.setdefault(buffer.dtype, []).append(buffer)
        self._flat = {
            dtype: torch.empty(sum(buffer.numel() for buffer in own), dtype=dtype, device="meta")
            for dtype, own in self._buffers.items()
        }
        buckets = bucket_sizes([p.numel() * p.element_size() for p in order])
        self._buckets = [[order[place] for place in bucket] for bucket in buckets]
        self._bucket_of = {
            id(p): number for number, bucket in enumerate(self._buckets) for p in bucket
        }
        self._waiting = [len(bucket) for bucket in self._buckets]
        self._views = [
            torch.empty(sum(p.numel() for p in bucket), dtype=bucket[0].dtype, device="meta")
            for bucket in self._buckets
        ]
        self._launched = 0
        self._unused = list(unused)
        self._marked = False
        # DDP's reducer, too, runs inside the autograd node that has accumulated a gradient.
        for parameter in order:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def broadcast_buffers(self) -> None:
        """Send rank 0's buffers to all ranks before the forward pass, one broadcast for each
        type.
        """
        for dtype, own in self._buffers.items():
            flat = self._flat[dtype]
            with self._recorder.group("aten::flatten_dense_tensors"):
                self._recorder.add("aten::cat", own, [flat], scalars={"lists": (len(own),)})
            self._collective("broadcast", flat)
        for dtype, own in self._buffers.items():
            host_only = {"host_only": True}
            self._recorder.add(
                "aten::unflatten_dense_tensors", [self._flat[dtype]], own, scalars=host_only
            )
            for buffer in own:
                self._copy(buffer, buffer)

    def finish(self) -> None:
        """Copy the reduced buckets back into the gradients, after the backward pass."""
        self._recorder.leave_node()
        for number, bucket in enumerate(self._buckets):
            for parameter in bucket:
                if any(parameter is other for other in self._unused):
                    continue
                with self._recorder.group(
                    "torch.distributed.ddp.reducer::copy_bucket_to_grad", [parameter]
                ):
                    self._copy(parameter, self._views[number], parameter)

    def _ready(self, parameter: Any) -> None:
        """Write down what DDP does once a gradient is there; called within its autograd node."""
        self._recorder.enter_node(torch._C._current_autograd_node())
        self._recorder.leave_node_itself()
        if self._unused and not self._marked:
            self._mark_unused()
        with self._recorder.group("torch::distributed::reducer::mul_out", [parameter]):
            self._recorder.add(
                "aten::mul", [parameter, None], [parameter], scalars={"other": "scalar"}
            )
        self._count(parameter)
        self._recorder.leave_node()

    def _mark_unused(self) -> None:
        """Fill parameters without a gradient with zeros, so that their buckets can be sent."""
        self._marked = True
        for parameter in self._unused:
            with self._recorder.group("aten::zero_", [parameter]):
                self._recorder.add("aten::fill_", [parameter], [parameter])
            self._count(parameter)

    def _count(self, parameter: Any) -> None:
        """Send each bucket that is full, in order."""
        self._waiting[self._bucket_of[id(parameter)]] -= 1
        while self._launched < len(self._buckets) and self._waiting[self._launched] == 0:
            self._collective("allreduce", self._views[self._launched])
            self._launched += 1

    def _collective(self, kind: str, tensor: torch.Tensor) -> None:
        with (
            self._recorder.group(f"c10d::{kind}_", [tensor]),
            self._recorder.group("record_param_comms", [tensor]),
        ):
            name = {"allreduce": "nccl:all_reduce", "broadcast": "nccl:broadcast"}[kind]
            self._recorder.add(name, [tensor], [tensor], scalars={"collective": kind})

    def _copy(self, target: Any, source: Any, like: Any = None) -> None:
        """A memory copy. like -- a tensor of the shape that is copied, where the source is a larger
        buffer.
        """
        shown = source if like is None else like
        self._recorder.add(
            "aten::copy_", [target, shown], [target], scalars={"direction": "DeviceToDevice"}
        )
