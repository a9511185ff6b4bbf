"""The data type of a kernel's matrix products, which is derived from its name."""

from __future__ import annotations

import re
from functools import lru_cache

_TENSILE = re.compile(
    r"(?:Custom_)?[CD]ijk_[A-Za-z]+_[A-Za-z]+_"
    r"(?P<input>I8|F8N?|B8N?|F8B8|B8F8|[HBSD](?![a-z]))[A-Z0-9]*_(?P<operation>M[XBH]_)?"
)
"""Letters that stand for the input type after the indices. If float32 is multiplied in another
type, `M` and a letter follow (Problem.py, SolutionStructs.py and DataType.py in
https://github.com/ROCm/Tensile and in hipBLASLt's tensilelite).
"""

_TENSILE_TYPES = {"H": "float16", "B": "bfloat16", "S": "float32", "D": "float64"}

_WORDS = (
    ("8 bits", r"fp8|bf8|int8|e4m3|e5m2|i8816gemm"),
    ("bfloat16", r"bf16"),
    ("float16", r"f16|fp16|half"),
    ("tf32", r"tf32"),
)
"""The parts of a name that indicate each type. If a name indicates several types, the kernel
multiplies in the shortest of these types.

The sources are `DataTypeNames` in python/cutlass_library/library.py of
https://github.com/NVIDIA/cutlass, the `xmma` kernels of cuBLAS and cuDNN, and MIOpen's
`igemm_fwd_gtcx3_nhwc_fp32_...`.
"""

_ACCUMULATOR = re.compile(r"(?<![a-z])([hsd])(\d*)(?:gemm|fprop|dgrad|wgrad)", re.IGNORECASE)
"""The letter of the accumulator's type, followed by the shape of a tensor core instruction
(`core_name` in python/cutlass_library/gemm_operation.py). Tensor cores can't multiply float32, so
`s1688gemm` without another type means TF32.
"""

_PLAIN = (
    ("float64", r"f64f64_f64f64|fp64"),
    ("float32", r"f32f32_f32f32|(?<![a-z])fp32"),
)


@lru_cache(2**12)
def product_type(name: str) -> str:
    """Return the data type of the factors in a kernel's matrix products.

    The type is float64, float32, tf32, bfloat16, float16 or `8 bits`. If the name doesn't indicate
    the type, the result is empty.

    >>> from tidyprof.names.product_types import product_type
    >>> product_type("Cijk_Ailk_Bljk_SB_MT128x64x16_SN")
    'float32'
    """
    if tensile := _TENSILE.match(name):
        if tensile["operation"]:
            return "tf32"
        return _TENSILE_TYPES.get(tensile["input"], "8 bits")
    for kind, words in _WORDS:
        if re.search(words, name, re.IGNORECASE):
            return kind
    if found := _ACCUMULATOR.search(name):
        letter, shape = found[1].lower(), found[2]
        return {"d": "float64", "h": "float16", "s": "tf32" if shape else "float32"}[letter]
    return next((kind for kind, words in _PLAIN if re.search(words, name)), "")
