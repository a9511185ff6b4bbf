"""Names for PyTorch's own kernels: C++ templates that hide the operation deep in their arguments."""

from __future__ import annotations

import itertools
import re

from tidyprof.names.cpp_symbols import DATA_TYPES, NOISE_WORDS, Symbol, plain_arguments

_WRAPPERS = re.compile(
    r"([AB]Unary|Binary|UnaryOp|Zero)Functor"
    r"|(BinaryOp|TernaryOp|PointwiseOp)(Scalar|ScalarList|ScalarTensor|List|ListAlpha)Functor"
    r"|ReduceOp|func_wrapper_t|gpu_kernel_impl|gpu_kernel_impl_nocast|elementwise_kernel"
    r"|(opmath_|opmath_symmetric_)?gpu_kernel(_with_scalars)?"
)
_OPERATION = re.compile(r"_kernel|Kernel|Functor|_functor|Ops$|^launch_|_cuda(_|$)|_gpu$")
_STANDARD_OPERATIONS = re.compile(
    r"plus|minus|multiplies|divides|maximum|minimum|Sqrt|Abs|Exp|Log|Neg|Sigmoid|Tanh|Round|Floor|Ceil|Trunc"
    r"|Reciprocal|Minimum|Maximum|Sin|Cos|Erf"
)
_AFFIXES = re.compile(
    r"^(launch_|CUDAFunctorOnSelf_|CUDAFunctorOnOther_|CUDAFunctor_|_+)"
    r"|(_kernel_cuda|_cuda_kernel|_cuda_out|_cuda_?|_gpu|_kernel_impl|_kernel|_impl|CUDAKernelImpl|CUDAKernel"
    r"|KernelImpl|Kernel|_functor|MathFunctor|Functor|Ops|Op|_stub)$"
)


def native_name(symbol: Symbol, room: int) -> str | None:
    """A name such as `elementwise mul fp32 vec4`, or None if the kernel is none of these templates.

    Elementwise kernels, reductions and multi-tensor (foreach) operations. `room` is the number of
    characters beyond which how a multi-tensor operation takes its operands is left out.
    """
    if symbol.name == "multi_tensor_apply_kernel":
        parts = ["multi_tensor", _wrapper(symbol), *_operation(symbol)]
        whole = " ".join(parts)
        return whole if len(whole) <= room else " ".join([parts[0], *parts[2:]])
    if "elementwise" in symbol.name:
        return " ".join(["elementwise", *_operation(symbol), *_elementwise_variant(symbol)])
    if symbol.name == "reduce_kernel":
        return " ".join(["reduce", *_operation(symbol), ",".join(plain_arguments(symbol)[:2])])
    return None


def _meaningful(symbol: Symbol) -> list[str]:
    return [word for word in symbol.words if word not in NOISE_WORDS]


def _wrapper(symbol: Symbol) -> str:
    """How a multi-tensor operation takes its operands: `BinaryOpScalar`, `PointwiseOpScalarList`."""
    return next((word.removesuffix("Functor") for word in symbol.words if _WRAPPERS.fullmatch(word)), "")


def _operation(symbol: Symbol) -> list[str]:
    """Operation and data type of a PyTorch template: the functor inside its wrappers."""
    words = _meaningful(symbol)
    place = _operation_place(words)
    if place is None:
        return []
    name = _operation_name(words[place])
    wrappers = [at for at, word in enumerate(words[:place]) if _WRAPPERS.fullmatch(word)]
    scalar = any(words[at] in ("AUnaryFunctor", "BUnaryFunctor") for at in wrappers)
    by_position = "with_index" in symbol.name or re.search("index|scatter", name)
    return [name, *(["scalar"] if scalar else []), "" if by_position else _data_type(words, wrappers, place)]


def _operation_place(words: list[str]) -> int | None:
    """Index of the word that names the operation, else of the first word that could, else None."""
    could = None
    for place, word in enumerate(words):
        if _WRAPPERS.fullmatch(word) or word in DATA_TYPES or word[0].isdigit() or "Metadata" in word:
            continue
        if _OPERATION.search(word) or _STANDARD_OPERATIONS.fullmatch(word):
            return place
        could = place if could is None else could
    return could


def _operation_name(word: str) -> str:
    own = word.startswith("CUDAFunctorOn")
    while True:
        shorter = _AFFIXES.sub("", word)
        if shorter == word or not shorter:
            break
        word = shorter
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    return f"{word} scalar" if own else word


def _data_type(words: list[str], wrappers: list[int], place: int) -> str:
    """The element type of an operation, or nothing where the symbol does not state it.

    A wrapper states the tensors' type first (the functor inside may compute in a wider one), then
    comes a functor's own argument, then what the innermost lambda takes.
    """
    for position in (*wrappers, place):
        if position + 1 < len(words) and words[position + 1] in DATA_TYPES:
            return DATA_TYPES[words[position + 1]]
    for position in range(place, len(words) - 1):
        if words[position] == "lambda" and not words[position + 1][0].isdigit() and words[position + 1] != "void":
            taken = list(itertools.takewhile(DATA_TYPES.__contains__, words[position + 1 :]))
            wide = [word for word in taken if word != "bool"] or taken
            return DATA_TYPES[wide[0]] if wide else ""
    return ""


def _elementwise_variant(symbol: Symbol) -> list[str]:
    variant = []
    if "vectorized" in symbol.name and symbol.words:
        variant.append(f"vec{symbol.words[0]}")
    elif "unroll" in symbol.name:
        variant.append("unrolled")
    if "LoadWithCast" in symbol.words:
        variant.append("cast")
    return variant
