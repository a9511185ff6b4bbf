"""Compile the kernels of lesson 16 without a GPU: python kernels.py SNIPPET FOLDER [CASE...].

Without CASE, the program compiles all of them.
"""

import importlib.util
import os
import sys

# Without line numbers, the assembly is half as long.
os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")
# This is the default up to Triton 3.9, which warns that it will change.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

try:
    import triton
    import triton.language as tl
except ImportError:
    sys.exit("Triton isn't installed, so the lesson continues with files compiled earlier.")


@triton.jit
def matmul(a, b, c, m, n, k, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inner = tl.arange(0, depth)
    a += row[:, None] * k + inner[None, :]
    b += inner[:, None] * n + column[None, :]
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for _ in range(0, k, depth):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += depth
        b += depth * n
    tl.store(c + row[:, None] * n + column[None, :], total.to(tl.bfloat16))


@triton.jit
def add_norm(x, residual, weight, out, width, block: tl.constexpr):
    column = tl.arange(0, block)
    there = column < width
    place = tl.program_id(0) * width + column
    value = tl.load(x + place, there, 0.0).to(tl.float32) + tl.load(
        residual + place, there, 0.0
    ).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + 1e-5)
    tl.store(
        out + place, (value * scale * tl.load(weight + column, there, 0.0)).to(tl.bfloat16), there
    )


MATRICES = {**dict.fromkeys("abc", "*bf16"), **dict.fromkeys("mnk", "i32")}
VECTORS = {"x": "*bf16", "residual": "*bf16", "weight": "*fp32", "out": "*bf16", "width": "i32"}


def product(side, depth, target="gfx942", **options):
    tile = {"rows": side, "columns": side, "depth": depth}
    return target, matmul, MATRICES, tile, {"num_warps": 4, "num_stages": 2, **options}


def fused(**options):
    return "gfx942", add_norm, VECTORS, {"block": 8192}, {"num_warps": 4, **options}


CASES = {
    "64x64x64": product(64, 64),
    "64x64x64_gfx950": product(64, 64, "gfx950"),
    "128x128x64": product(128, 64),
    "128x128x64_gfx950": product(128, 64, "gfx950"),
    "128x128x64_1stage": product(128, 64, num_stages=1),
    "128x128x64_4waves": product(128, 64, waves_per_eu=4),
    "256x256x64": product(256, 64),
    "256x256x64_gfx950": product(256, 64, "gfx950"),
    "256x256x64_8warps": product(256, 64, num_warps=8),
    "256x256x64_8warps_gfx950": product(256, 64, "gfx950", num_warps=8),
    "256x256x32": product(256, 32),
    "256x256x32_gfx950": product(256, 32, "gfx950"),
    "256x256x32_8warps": product(256, 32, num_warps=8),
    "256x256x32_8warps_gfx950": product(256, 32, "gfx950", num_warps=8),
    "add_norm": fused(),
    "add_norm_odd": fused(odd=["width"]),
}

if __name__ == "__main__":
    spec = importlib.util.spec_from_file_location("compiler", sys.argv[1])
    compiler = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiler)
    names = sys.argv[3:] or [*CASES]
    for number, name in enumerate(names, 1):
        print(f"\r{number} of {len(names)}: {name:25}", end="", flush=True)
        target, kernel, signature, constants, options = CASES[name]
        to = f"{sys.argv[2]}/{name}"
        compiler.compile_for(target, kernel, signature, constants, to, **options)
    print(f"\nCompiled with Triton {triton.__version__}, without a GPU.")
