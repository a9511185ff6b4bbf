"""The small kernels around a convolution: clearing, casting and transposing.

An implicit-GEMM kernel works in NHWC order, so tensors in NCHW order are transposed before and
after it, unless they have one channel or one pixel. It adds partial sums to its result, which
SubTensorOpWithScalar1d clears first. Which transpose kernel takes which shape follows the 4-rank
trace.
"""

from __future__ import annotations

from gpumodel.kernels.convolution_shapes import Convolution
from gpumodel.kernels.launch import ITEM_BYTES, KernelLaunch, blocks

_TRANSPOSE_TYPES = {2: "half", 4: "dword"}


def around_implicit_gemm(shape: Convolution, main: KernelLaunch, cast: bool) -> list[KernelLaunch]:
    """Clear the result, transpose what goes in, run, cast where sums were float32, transpose what
    comes out.
    """
    tensors = {
        "input": (shape.n, shape.c, shape.h * shape.w),
        "filter": (shape.k, shape.c, shape.r * shape.s),
        "output": (shape.n, shape.k, shape.p * shape.q),
    }
    incoming, outgoing = {
        "forward": (("input", "filter"), "output"),
        "data": (("output", "filter"), "input"),
        "weights": (("input", "output"), "filter"),
    }[shape.direction]
    item = ITEM_BYTES[shape.dtype]
    # The sums are in float32, twice as wide as the 16-bit result that they are cast to.
    cleared = main.bytes_written * (2 if cast else 1)
    chain: list[KernelLaunch | None] = [
        _set_tensor("SubTensorOpWithScalar1d", cleared, 0.0, shape.dtype)
    ]
    chain += (
        [] if shape.channels_last else [_transpose(*tensors[name], item, True) for name in incoming]
    )
    chain.append(main)
    if cast:
        chain.append(
            _set_tensor(
                "SubTensorOpWithCastTensor1d",
                main.bytes_written,
                2 * main.bytes_written,
                shape.dtype,
            )
        )
    chain += [] if shape.channels_last else [_transpose(*tensors[outgoing], item, False)]
    return [launch for launch in chain if launch is not None]


def to_cnhw(shape: Convolution) -> KernelLaunch:
    """The transpose before a strided matrix product, one workgroup for each channel."""
    return _cnhw("transpose_NCHW2CNHW_V2_2D_WG_off64", shape, shape.c)


def from_cnhw(shape: Convolution) -> KernelLaunch:
    """The transpose after a strided matrix product, one workgroup for each filter."""
    return _cnhw("transpose_CNHW2NCHW_V2_2D_WG_off64", shape, shape.k)


def _cnhw(name: str, shape: Convolution, channels: int) -> KernelLaunch:
    size = float(shape.n * channels * shape.p * shape.q * ITEM_BYTES[shape.dtype])
    side = max(1, shape.p * shape.q)
    return KernelLaunch(
        name=name,
        grid=(side, 1, channels),
        workgroup=(side, 1, 1),
        vector_registers=16,
        scalar_registers=48,
        data_type=shape.dtype,
        bytes_read=size,
        bytes_written=size,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class="transpose_cnhw",
    )


def _set_tensor(name: str, written: float, read: float, dtype: str) -> KernelLaunch:
    return KernelLaunch(
        name=name,
        grid=(65536, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=8,
        scalar_registers=32,
        data_type=dtype,
        bytes_read=read,
        bytes_written=written,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class="set_tensor",
    )


def _transpose(
    count: int, channels: int, pixels: int, item: int, to_nhwc: bool
) -> KernelLaunch | None:
    """The transpose of `count` matrices of channels x pixels; None where both orders are the same
    in memory.
    """
    if pixels == 1 or channels == 1:
        return None
    pixel_tile, channel_tile = _tile(channels, pixels, to_nhwc)
    first, second = (pixel_tile, channel_tile) if to_nhwc else (channel_tile, pixel_tile)
    size = float(count * channels * pixels * item)
    return KernelLaunch(
        name=f"batched_transpose_{first}x{second}_{_TRANSPOSE_TYPES[item]}",
        grid=(count * blocks(channels, channel_tile) * blocks(pixels, pixel_tile) * 256, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=24,
        scalar_registers=40,
        lds_bytes=pixel_tile * channel_tile * item,
        data_type="float16" if item == 2 else "float32",
        bytes_read=size,
        bytes_written=size,
        runtime_call="hipExtModuleLaunchKernel",
        cost_class="transpose",
    )


def _tile(channels: int, pixels: int, to_nhwc: bool) -> tuple[int, int]:
    """Pixels and channels of one tile."""
    if channels <= 4:
        return (256 if to_nhwc else 64), 4
    if pixels <= 4:
        return 4, 128 if channels <= 512 else 256
    return (16, 32) if pixels < 32 else (32, 32)
