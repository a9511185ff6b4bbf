"""The shapes of a convolution, in each of the directions that an operator runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpumodel.kernels.launch import ITEM_BYTES, present
from gpumodel.recording.operators import Operator, TensorInfo


@dataclass(frozen=True)
class Convolution:
    """Shapes of one convolution: N images of C channels, K filters of R x S pixels; images of H x W
    pixels go in, and P x Q come out.

    direction -- forward, data (gradient of the input) or weights (gradient of the filters).
    """

    direction: str
    dtype: str
    channels_last: bool
    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    p: int
    q: int
    stride: int
    groups: int = 1

    @property
    def flops(self) -> float:
        """FLOPs of the direct algorithm, padding included; a multiplication and an addition are
        two.
        """
        return 2.0 * self.n * self.k * self.p * self.q * (self.c // self.groups) * self.r * self.s

    @property
    def pointwise(self) -> bool:
        """Whether it has 1 x 1 filters at every pixel, and so is a plain matrix product."""
        return self.r == self.s == self.stride == 1

    @property
    def matrix(self) -> tuple[int, int, int]:
        """Rows, columns and inner dimension of the same convolution as a matrix product."""
        filters = self.c * self.r * self.s
        return {
            "forward": (self.n * self.p * self.q, self.k, filters),
            "data": (self.n * self.h * self.w, self.c, self.k * self.r * self.s),
            "weights": (self.k, filters, self.n * self.p * self.q),
        }[self.direction]

    def bytes_of(self) -> tuple[float, float]:
        """Bytes read and written, each tensor once."""
        item = ITEM_BYTES[self.dtype]
        sizes = {
            "input": self.n * self.c * self.h * self.w * item,
            "filter": self.k * (self.c // self.groups) * self.r * self.s * item,
            "output": self.n * self.k * self.p * self.q * item,
        }
        written = sizes.pop(
            {"forward": "output", "data": "input", "weights": "filter"}[self.direction]
        )
        return float(sum(sizes.values())), float(written)


def shapes_of(operator: Operator) -> Iterator[Convolution]:
    """The one convolution of a forward operator; of a backward operator, one for each gradient that
    output_mask asks for.
    """
    backward = operator.name == "aten::convolution_backward"
    values, weights = input_and_filter(operator)
    outgoing = present(operator)[0] if backward else operator.outputs[0]
    stride = operator.scalars.get("stride") or [1, 1]
    n, c, h, w = values.shape
    r, s = weights.shape[2:]
    p, q = outgoing.shape[2:]
    shape = Convolution(
        "forward",
        values.dtype,
        # PyTorch brings the input into the order of the filters. Where that is both orders at once,
        # the input decides.
        weights.channels_last or (_has_both_orders(weights) and values.channels_last),
        n,
        c,
        h,
        w,
        weights.shape[0],
        r,
        s,
        p,
        q,
        stride=int(stride[0]),
        groups=int(operator.scalars.get("groups") or 1),
    )
    if not backward:
        yield shape
        return
    mask = operator.scalars.get("output_mask") or (True, True, False)
    yield from (
        replace(shape, direction=name)
        for name, wanted in zip(("data", "weights"), mask, strict=False)
        if wanted
    )


def input_and_filter(operator: Operator) -> tuple[TensorInfo, TensorInfo]:
    """The input [N, C, H, W] and the filters [K, C / groups, R, S] of a convolution in either
    direction.
    """
    tensors = present(operator)
    return (
        (tensors[1], tensors[2])
        if operator.name == "aten::convolution_backward"
        else (tensors[0], tensors[1])
    )


def _has_both_orders(tensor: TensorInfo) -> bool:
    """Whether NCHW and NHWC order are the same in memory, so that channels_last says nothing."""
    return tensor.shape[1] == 1 or tensor.shape[2] * tensor.shape[3] == 1


def disagree(values: TensorInfo, weights: TensorInfo) -> bool:
    """Whether one of the two lies in NCHW order and the other in NHWC order."""
    either = _has_both_orders(values) or _has_both_orders(weights)
    return not either and values.channels_last != weights.channels_last
