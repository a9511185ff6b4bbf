"""A workload that runs a single matrix product: X [N, M] times W [J, K], where M equals J.

`python -m cifar_train.matmul --x-shape N M --w-shape J K` creates both matrices on the host and
copies them to the device. The program then multiplies the matrices and copies the product back.
A trace therefore contains two copies to the device, one kernel and one copy back.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from cifar_train.config import DEVICES
from cifar_train.ranks import Launch, pick_device
from tidyprof.command_line import Parser, program
from tidyprof.errors import UserError
from tidyprof.standard_streams import tell


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = Parser(
        prog=program("cifar_train.matmul"), description="Multiply two random matrices on a device."
    )
    parser.add_argument(
        "--x-shape",
        type=int,
        nargs=2,
        metavar=("N", "M"),
        default=[5000, 1000],
        help="set the shape of X",
    )
    parser.add_argument(
        "--w-shape",
        type=int,
        nargs=2,
        metavar=("J", "K"),
        default=[1000, 800],
        help="set the shape of W",
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="choose the device (default: %(default)s)"
    )
    return parser


def multiply(x_shape: Sequence[int], w_shape: Sequence[int], device_name: str) -> dict[str, Any]:
    """Run the matrix product once and return its time, FLOPs, device and mean.

    The time in nanoseconds covers the copies to the device, the product and the copy back. The
    device is synchronized before and after. Raises UserError for incompatible shapes and for a
    device that torch doesn't detect.
    """
    if min(*x_shape, *w_shape) < 1 or x_shape[1] != w_shape[0]:
        raise UserError(
            f"--x-shape {x_shape} and --w-shape {w_shape} must contain positive numbers, and the"
            " second number of --x-shape must equal the first number of --w-shape."
        )
    import torch

    from cifar_train.clock import synchronize

    device = pick_device(device_name, Launch())
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(*x_shape, generator=generator)
    w = torch.rand(*w_shape, generator=generator)
    synchronize(device)
    begin = time.perf_counter_ns()
    product = torch.matmul(x.to(device), w.to(device)).cpu()
    synchronize(device)
    return {
        "device": str(device),
        "duration_ns": time.perf_counter_ns() - begin,
        "flops": 2 * x_shape[0] * x_shape[1] * w_shape[1],
        "checksum": product.double().mean().item(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0 for success and 2 for an error that the user can fix."""
    try:
        options = build_parser().parse_args(arguments)
        result = multiply(options.x_shape, options.w_shape, options.device)
    except UserError as error:
        tell(f"error: {error}")
        return 2
    speed = f"{result['flops'] / 1e9:.2f} GFLOP on {result['device']}"
    print(f"{speed}: {result['duration_ns'] / 1e6:.2f} ms with copies")
    print(f"mean of the product: {result['checksum']:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
