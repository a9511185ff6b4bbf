"""Convolutions by MIOpen: which solution it takes, and which kernels that launches, in order."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from gpumodel.devices import Device
from gpumodel.kernels import around_convolutions as helpers
from gpumodel.kernels.convolution_shapes import Convolution, disagree, input_and_filter, shapes_of
from gpumodel.kernels.launch import ITEM_BYTES, KernelLaunch
from gpumodel.kernels.matrix_products import Tile, name_of, parallelism, workgroups
from gpumodel.kernels.transfers import converting_copy
from gpumodel.recording.operators import Operator

_DIRECTION_NAMES = {"forward": "fwd", "data": "bwd", "weights": "wrw"}
_TYPE_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_MINIMUM_GROUPS = 512
"""Implicit GEMM splits the summed dimension until there are about this many workgroups; recorded
grids have 128 to 1024.
"""


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
    """MIOpen's choice for this shape, as data/convolutions.toml writes it. solutions -- one of
    gpumodel.workload.SOLUTIONS.
    """
    row = _listed().get((shape.direction, shape.c, shape.k, shape.r, shape.stride, shape.h))
    if row is None:
        return _tables()["fallback"][shape.direction]
    has_winograd = shape.dtype == "float16" and not shape.channels_last
    return row["winograd"] if solutions == "winograd" and has_winograd else row["implicit_gemm"]


def launches(operator: Operator, device: Device, solutions: str) -> tuple[KernelLaunch, ...]:
    """Kernels of aten::miopen_convolution or aten::convolution_backward.

    Where input and filters lie in different orders, PyTorch first brings the input into the order
    of the filters.
    """
    values, weights = input_and_filter(operator)
    chain = [converting_copy(values, values)] if disagree(values, weights) else []
    for shape in shapes_of(operator):
        chain += _launches_of_shape(shape, device, solution_of(shape, solutions))
    return tuple(chain)


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


def _implicit_gemm(
    shape: Convolution, device: Device, tile_name: str, cast: str = ""
) -> list[KernelLaunch]:
    tile = _tile(tile_name)
    product_rows, product_columns, inner = shape.matrix
    tiles = workgroups(product_rows, product_columns, 1, tile)
    # Few tiles would leave compute units without work, so the summed dimension is split. Weight
    # gradients have their parts along z.
    splits = (
        max(1, min(_MINIMUM_GROUPS // tiles, inner // tile.depth)) if tiles < _MINIMUM_GROUPS else 1
    )
    grid = (
        (tiles * 256, 1, splits) if shape.direction == "weights" else (tiles * splits * 256, 1, 1)
    )
    read, written = shape.bytes_of()
    main = KernelLaunch(
        name=_implicit_gemm_name(shape, device, tile_name),
        grid=grid,
        workgroup=(256, 1, 1),
        vector_registers=128,
        accumulation_registers=min(256, tile.rows * tile.columns // 256),
        scalar_registers=96,
        lds_bytes=min(65536, 2 * (tile.rows + tile.columns) * tile.depth * ITEM_BYTES[shape.dtype]),
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


def _tile(name: str) -> Tile:
    """The tile that data/convolutions.toml writes as 128x128x32."""
    return Tile(*map(int, name.split("x")))


def _implicit_gemm_name(shape: Convolution, device: Device, tile: str) -> str:
    generation = "gtcx2" if device.gfx == "gfx90a" else "gtcx3"
    tail = _tables()["igemm"][shape.direction][tile]
    if shape.direction == "data" and not shape.pointwise:
        tail = tail.replace("_gkgs", "_mh_gkgs")
    # The table has names of 16-bit kernels; matrix instructions of float32 take fewer values.
    if shape.dtype == "float32":
        tail = tail.replace("wt32x32x8", "wt32x32x2").replace("wt16x16x16", "wt16x16x4")
    direction, kind = _DIRECTION_NAMES[shape.direction], _TYPE_NAMES[shape.dtype]
    head = f"igemm_{direction}_{generation}_nhwc_{kind}"
    return f"{head}_bx0_ex{0 if shape.pointwise else 1}_bt{tile}_{tail}"


def _winograd(shape: Convolution, device: Device, variant: str) -> KernelLaunch:
    """One persistent workgroup of 512 work-items on each compute unit loops over the summed
    dimension.
    """
    read, written = shape.bytes_of()
    summed = {"forward": shape.c, "data": shape.k, "weights": shape.n * shape.p * shape.q}[
        shape.direction
    ]
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


def _matrix_product(shape: Convolution, device: Device, tile_name: str) -> KernelLaunch:
    """A pointwise convolution as a matrix product by rocBLAS, one product for each image."""
    tile = _tile(tile_name)
    layout = "Ailk_Bljk" if shape.direction == "forward" else "Ailk_Bjlk"
    pixels, channels = shape.p * shape.q, shape.k if shape.direction == "forward" else shape.c
    groups = workgroups(pixels, channels, shape.n, tile)
    read, written = shape.bytes_of()
    return KernelLaunch(
        name=name_of(layout, shape.dtype, tile, device),
        grid=(-(-pixels // tile.rows) * 256, -(-channels // tile.columns), shape.n),
        workgroup=(256, 1, 1),
        vector_registers=96,
        accumulation_registers=max(4, tile.rows * tile.columns // 256),
        scalar_registers=96,
        lds_bytes=min(65536, (tile.rows + tile.columns) * tile.depth * ITEM_BYTES[shape.dtype]),
        flops=shape.flops,
        data_type=shape.dtype,
        matrix_cores=True,
        bytes_read=read,
        bytes_written=written,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class="convolution_gemm",
        parallelism=parallelism(groups, device.compute_units),
    )
