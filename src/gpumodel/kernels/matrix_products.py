"""Matrix products by hipBLASLt and rocBLAS: names, tiles and grids.

The letters of a Tensile name say how the operands lie (Alik_Bljk: both have the summed index
first), what is stored and computed (HHS: half, half, single), the macro tile (MT) and the
architecture (ISA). Tiles come from a short list of those that public MI300X traces show;
hipBLASLt's own choice among hundreds is not reproduced.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gpumodel.devices import Device
from gpumodel.kernels.elementwise import fill, strided
from gpumodel.kernels.launch import KernelLaunch, blocks, elements, nbytes, present, result
from gpumodel.kernels.transfers import COPY_FUNCTOR
from gpumodel.recording.operators import Operator


class Tile(NamedTuple):
    """The macro tile that a workgroup computes: rows and columns of the result, and the depth of
    one step of its loop over the summed index.
    """

    rows: int
    columns: int
    depth: int


TILES = (
    Tile(256, 192, 64),
    Tile(128, 128, 64),
    Tile(64, 64, 64),
    Tile(64, 32, 64),
    Tile(16, 32, 128),
)
"""Macro tiles, large ones first."""

TYPE_LETTERS = {"float16": "HHS", "bfloat16": "BBS", "float32": "S", "float64": "D"}
"""Tensile's letters for a type: 16-bit operands and results with float32 sums, or one type for
all.
"""

_TAIL = (
    "SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_EPS0_GRVWA8_GRVWB8_GSUAMB_ISA{isa}_IU1_K1"
    "_LBSPPA512_LBSPPB512_LBSPPM0_LPA16_LPB16_LPM0_LRVW8_LWPMn1_MIAV0_MIWT{wave}_MO40_NTn1"
    "_NTA0_NTB0_NTC0_NTD0_NTM0_NEPBS16_NLCA1_NLCB1_ONLL1_PGR2_PLR1_PKA1_SIA3_SS1_SPO0_SRVW0"
    "_SSO0_SVW1_TLDS1_USFGROn1_VSn1_VWA1_VWB1_WSGRA0_WSGRB0_WS64_WG{group}"
)
"""The parameters that end a Tensile name. All but the architecture, the waves and the workgroup are
the same here for every product, since nothing depends on them.
"""


def choose_tile(rows: int, columns: int, batch: int, compute_units: int) -> Tile:
    """The largest tile that gives every compute unit a workgroup, else the smallest."""
    for tile in TILES:
        if workgroups(rows, columns, batch, tile) >= compute_units:
            return tile
    return TILES[-1]


def workgroups(rows: int, columns: int, batch: int, tile: Tile) -> int:
    """How many tiles cover the result."""
    return blocks(rows, tile.rows) * blocks(columns, tile.columns) * batch


def parallelism(groups: int, compute_units: int) -> float:
    """Mean share of the compute units that have work when `groups` workgroups run in rounds, one on
    each unit.
    """
    return groups / (math.ceil(groups / compute_units) * compute_units)


def name_of(layout: str, dtype: str, tile: Tile, device: Device) -> str:
    """Tensile's name of a product. layout -- how the operands lie, e.g. "Ailk_Bljk"."""
    group = "64_4_1" if tile.rows >= 128 else "32_8_1"
    wave = f"{max(1, tile.rows // 64)}_{max(1, tile.columns // 32)}"
    tail = _TAIL.format(isa=device.gfx.removeprefix("gfx"), wave=wave, group=group)
    letters = f"{TYPE_LETTERS.get(dtype, 'S')}_B{'H' if dtype in ('float16', 'bfloat16') else ''}"
    macro_tile = "x".join(map(str, tile))
    return f"Cijk_{layout}_{letters}_Bias_HA_S_SAV_UserArgs_MT{macro_tile}_MI16x16x1_{tail}"


def product(
    rows: int,
    columns: int,
    inner: int,
    batch: int,
    dtype: str,
    layout: str,
    device: Device,
    cost_class: str = "matrix_product",
) -> KernelLaunch:
    """One launch of [batch, rows, inner] times [batch, inner, columns]."""
    tile = choose_tile(rows, columns, batch, device.compute_units)
    groups = workgroups(rows, columns, batch, tile)
    item = 2 if dtype in ("float16", "bfloat16") else 4
    return KernelLaunch(
        name=name_of(layout, dtype, tile, device),
        # hipBLASLt puts all tiles along x in current releases.
        grid=(groups * 256, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=128,
        accumulation_registers=tile.rows * tile.columns // 256,
        scalar_registers=96,
        lds_bytes=min(65536, (tile.rows + tile.columns) * tile.depth * item),
        flops=2.0 * rows * columns * inner * batch,
        data_type=dtype,
        matrix_cores=True,
        bytes_read=float(item * batch * inner * (rows + columns)),
        bytes_written=float(item * batch * rows * columns),
        runtime_call="hipExtModuleLaunchKernel",
        cost_class=cost_class,
        serial_steps=float(inner),
        parallelism=parallelism(groups, device.compute_units),
    )


def addmm(operator: Operator, device: Device) -> tuple[KernelLaunch, ...]:
    """aten::addmm (bias, left, right): copies the bias into the result in 16 bits, then
    multiplies.
    """
    bias, left, right = present(operator)[:3]
    target = result(operator)
    multiply = product(
        left.shape[0], right.shape[1], left.shape[1], 1, left.dtype, "Alik_Bljk", device
    )
    name, group, per_group = strided(fill(COPY_FUNCTOR, target.dtype), cast=False)
    copy_bias = KernelLaunch(
        name=name,
        grid=(blocks(elements(target), per_group) * group, 1, 1),
        workgroup=(group, 1, 1),
        vector_registers=20,
        scalar_registers=80,
        data_type=target.dtype,
        bytes_read=nbytes(bias),
        bytes_written=nbytes(target),
        cost_class="elementwise_strided",
    )
    # hipBLASLt adds the bias itself where the result is large enough for its epilogue. From which
    # size on is an assumption.
    return (
        (multiply,) if min(target.shape) > 1 and elements(target) > 65536 else (copy_bias, multiply)
    )


def mm(operator: Operator, device: Device) -> tuple[KernelLaunch, ...]:
    """aten::mm. Outside of the forward pass, a product that sums over more values than it has rows
    is taken for a weight gradient, whose operands are transposed.
    """
    left, right = present(operator)[:2]
    rows, inner = left.shape
    layout = "Ailk_Bjlk" if inner > rows else "Ailk_Bljk"
    if operator.phase == "forward":
        layout = "Alik_Bljk"
    return (product(rows, right.shape[1], inner, 1, left.dtype, layout, device),)


def bmm(operator: Operator, device: Device) -> tuple[KernelLaunch, ...]:
    """aten::bmm, and aten::baddbmm without its addend."""
    left, right = present(operator)[-2:]
    batch, rows, inner = left.shape
    return (product(rows, right.shape[2], inner, batch, left.dtype, "Ailk_Bljk", device),)
