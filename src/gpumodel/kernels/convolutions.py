"""Convolutions by MIOpen: which solution, and the kernels that it launches in order."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpumodel.kernels import around_convolutions as helpers
from gpumodel.kernels.launch import KernelLaunch
from gpumodel.kernels.matrix_products import name_of, parallelism, workgroups
from gpumodel.kernels.tensors import ITEM_BYTES, present
from gpumodel.kernels.transfers import converting_copy

if TYPE_CHECKING:
    from gpumodel.devices import Device
    from gpumodel.recording.operators import Operator, TensorInfo

_DIRECTION_NAMES = {"forward": "fwd", "data": "bwd", "weights": "wrw"}
_TYPE_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_MINIMUM_GROUPS = 512
"""Implicit GEMM splits the summed dimension until there are about this many workgroups (recorded grids: 128-1024)."""


@dataclass(frozen=True)
class Convolution:
    """Shapes of one convolution: N images of C channels, K filters of R x S; H, W going in, P, Q coming out."""

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
        """Of the direct algorithm, padding included; a multiplication and an addition are two."""
        return 2.0 * self.n * self.k * self.p * self.q * (self.c // self.groups) * self.r * self.s

    @property
    def pointwise(self) -> bool:
        """1 x 1 filters at every pixel: a plain matrix product."""
        return self.r == self.s == self.stride == 1

    @property
    def matrix(self) -> tuple[int, int, int]:
        """Rows, columns and inner dimension of the matrix product that it is."""
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
        written = sizes.pop({"forward": "output", "data": "input", "weights": "filter"}[self.direction])
        return float(sum(sizes.values())), float(written)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((files("gpumodel") / "data" / "convolutions.toml").read_text())


@cache
def _listed() -> dict[tuple, dict[str, str]]:
    return {
        (row["direction"], *row["channels"], row["filter"], row["stride"], row["size"]): row
        for row in _tables()["convolutions"]
    }


def solution_of(shape: Convolution, solutions: str) -> str:
    """MIOpen's choice, as data/convolutions.toml writes it; `solutions` is one of gpumodel.workload.SOLUTIONS."""
    row = _listed().get((shape.direction, shape.c, shape.k, shape.r, shape.stride, shape.h))
    if row is None:
        return _tables()["fallback"][shape.direction]
    has_winograd = shape.dtype == "float16" and not shape.channels_last
    return row["winograd"] if solutions == "winograd" and has_winograd else row["implicit_gemm"]


def launches(operator: Operator, device: Device, solutions: str) -> tuple[KernelLaunch, ...]:
    """Kernels of aten::miopen_convolution or aten::convolution_backward.

    Input and filter in different orders make PyTorch bring the input into the filter's order first.
    """
    values, weights = _input_and_filter(operator)
    chain = [converting_copy(values, values)] if _disagree(values, weights) else []
    for shape in shapes_of(operator):
        chain += _launches_of_shape(shape, device, solution_of(shape, solutions))
    return tuple(chain)


def shapes_of(operator: Operator) -> Iterator[Convolution]:
    """One convolution forward; backward those gradients that output_mask asks for."""
    backward = operator.name == "aten::convolution_backward"
    values, weights = _input_and_filter(operator)
    outgoing = present(operator)[0] if backward else operator.outputs[0]
    stride = operator.scalars.get("stride") or [1, 1]
    shape = Convolution(
        "forward",
        values.dtype,
        weights.channels_last or (_has_both_orders(weights) and values.channels_last),
        *values.shape,
        weights.shape[0],
        *weights.shape[2:],
        *outgoing.shape[2:],
        stride=int(stride[0]),
        groups=int(operator.scalars.get("groups") or 1),
    )
    if not backward:
        yield shape
        return
    mask = operator.scalars.get("output_mask") or (True, True, False)
    yield from (
        replace(shape, direction=name) for name, wanted in zip(("data", "weights"), mask, strict=False) if wanted
    )


def _input_and_filter(operator: Operator) -> tuple[TensorInfo, TensorInfo]:
    tensors = present(operator)
    return (tensors[1], tensors[2]) if operator.name == "aten::convolution_backward" else (tensors[0], tensors[1])


def _has_both_orders(tensor: TensorInfo) -> bool:
    """Whether NCHW and NHWC order are the same in memory, so that channels_last says nothing."""
    return tensor.shape[1] == 1 or tensor.shape[2] * tensor.shape[3] == 1


def _disagree(values: TensorInfo, weights: TensorInfo) -> bool:
    either = _has_both_orders(values) or _has_both_orders(weights)
    return not either and values.channels_last != weights.channels_last


def _launches_of_shape(shape: Convolution, device: Device, solution: str) -> list[KernelLaunch]:
    kind, _, variant = solution.partition(" ")
    if kind == "igemm":
        return _implicit_gemm(shape, device, *variant.split())
    if kind == "winograd":
        return [_winograd(shape, device, variant)]
    if kind == "naive":
        return [_naive(shape, device)]
    main = _matrix_product(shape, device, variant)
    if kind == "gemm_cnhw":
        return [helpers.to_cnhw(shape), main, helpers.from_cnhw(shape)]
    return [main]


def _implicit_gemm(shape: Convolution, device: Device, tile: str, cast: str = "") -> list[KernelLaunch]:
    rows, columns, depth = (int(number) for number in tile.split("x"))
    product_rows, product_columns, inner = shape.matrix
    tiles = workgroups(product_rows, product_columns, 1, (rows, columns, depth))
    splits = max(1, min(_MINIMUM_GROUPS // tiles, inner // depth)) if tiles < _MINIMUM_GROUPS else 1
    grid = (tiles * 256, 1, splits) if shape.direction == "weights" else (tiles * splits * 256, 1, 1)
    read, written = shape.bytes_of()
    main = KernelLaunch(
        name=_implicit_gemm_name(shape, device, tile),
        grid=grid,
        workgroup=(256, 1, 1),
        vector_registers=128,
        accumulation_registers=min(256, rows * columns // 256),
        scalar_registers=96,
        lds_bytes=min(65536, 2 * (rows + columns) * depth * ITEM_BYTES[shape.dtype]),
        flops=shape.flops,
        data_type=shape.dtype,
        matrix_cores=True,
        bytes_read=read,
        bytes_written=written,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class=f"igemm_{shape.direction}_{'pointwise' if shape.pointwise else 'spatial'}",
        parallelism=parallelism(tiles * splits, device.compute_units),
    )
    return helpers.around_implicit_gemm(shape, main, cast == "cast")


def _implicit_gemm_name(shape: Convolution, device: Device, tile: str) -> str:
    generation = "gtcx2" if device.gfx == "gfx90a" else "gtcx3"
    tail = _tables()["igemm"][shape.direction][tile]
    if shape.direction == "data" and not shape.pointwise:
        tail = tail.replace("_gkgs", "_mh_gkgs")
    if shape.dtype == "float32":
        tail = tail.replace("wt32x32x8", "wt32x32x2").replace("wt16x16x16", "wt16x16x4")
    direction, kind = _DIRECTION_NAMES[shape.direction], _TYPE_NAMES[shape.dtype]
    return f"igemm_{direction}_{generation}_nhwc_{kind}_bx0_ex{0 if shape.pointwise else 1}_bt{tile}_{tail}"


def _winograd(shape: Convolution, device: Device, variant: str) -> KernelLaunch:
    """One persistent workgroup of 512 work-items on each compute unit loops over the summed dimension."""
    read, written = shape.bytes_of()
    summed = {"forward": shape.c, "data": shape.k, "weights": shape.n * shape.p * shape.q}[shape.direction]
    # A strided or dilated convolution is taken apart into stride^2 dense ones.
    rounds = shape.stride**2 if shape.r > 1 or variant.endswith("dilation2") else 1
    return KernelLaunch(
        name=f"miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_{variant}",
        grid=(device.compute_units * 512, 1, 1),
        workgroup=(512, 1, 1),
        vector_registers=128,
        scalar_registers=96,
        lds_bytes=65536,
        flops=shape.flops,
        data_type=shape.dtype,
        bytes_read=read,
        bytes_written=written,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class="winograd_weights" if shape.direction == "weights" else "winograd_data",
        serial_steps=float(summed * rounds),
    )


def _naive(shape: Convolution, device: Device) -> KernelLaunch:
    """MIOpen's reference kernel: one workgroup for each filter, a loop over images and pixels."""
    read, written = shape.bytes_of()
    direction = _DIRECTION_NAMES[shape.direction]
    return KernelLaunch(
        name=f"naive_conv_nonpacked_{direction}_nchw_half_double_half",
        grid=(shape.k * 256, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=40,
        scalar_registers=80,
        flops=shape.flops,
        data_type=shape.dtype,
        bytes_read=read,
        bytes_written=written,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class="convolution_naive",
    )


def _matrix_product(shape: Convolution, device: Device, tile: str) -> KernelLaunch:
    """A pointwise convolution as rocBLAS matrix product, one for each image."""
    rows, columns, depth = (int(number) for number in tile.split("x"))
    layout = "Ailk_Bljk" if shape.direction == "forward" else "Ailk_Bjlk"
    pixels, channels = shape.p * shape.q, shape.k if shape.direction == "forward" else shape.c
    groups = workgroups(pixels, channels, shape.n, (rows, columns, depth))
    read, written = shape.bytes_of()
    return KernelLaunch(
        name=name_of(layout, shape.dtype, (rows, columns, depth), device),
        grid=(-(-pixels // rows) * 256, -(-channels // columns), shape.n),
        workgroup=(256, 1, 1),
        vector_registers=96,
        accumulation_registers=max(4, rows * columns // 256),
        scalar_registers=96,
        lds_bytes=min(65536, (rows + columns) * depth * ITEM_BYTES[shape.dtype]),
        flops=shape.flops,
        data_type=shape.dtype,
        matrix_cores=True,
        bytes_read=read,
        bytes_written=written,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class="convolution_gemm",
        parallelism=parallelism(groups, device.compute_units),
    )
