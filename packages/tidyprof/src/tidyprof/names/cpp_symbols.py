"""A parser for kernel names, which covers C++ symbols and the operations in PyTorch's templates.

A readable name needs only the function's own name and the words in its template arguments, so a
full demangler isn't necessary. The parser finds these parts in one pass without recursion, in both
demangled and mangled names. The grammar of mangled names is in the Itanium C++ ABI, section 5.1
"External Names", https://itanium-cxx-abi.github.io/cxx-abi/abi.html.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidyprof.package_data import table_of

TABLE: Mapping[str, Any] = table_of("names/kernel_names.toml")
"""Words in the names of kernels."""

DATA_TYPES: Mapping[str, str] = TABLE["data_types"]
"""The spelling of number types in short names, by their C++ and PyTorch spellings."""

_BUILTIN_TYPES: Mapping[str, str] = TABLE["builtin_types"]
_WORD = re.compile(r"\w+")
_ITEM = re.compile(
    r"L[a-z]n?(?P<literal>\d+)E|[ST][0-9A-Z]*_|(?P<length>[1-9]\d{0,4})|(?P<lambda>Ul)|(?P<types>I)|.",
    re.DOTALL,
)
"""An item of a mangled name: a literal, a substitution, the length of a word, or another letter."""

_BUILTIN = re.compile("|".join(TABLE["builtin_types"]))

_DEMANGLED = re.compile(r"[^<(]*\w[<(].*(\)|>|\.\.\.)", re.DOTALL)
"""A complete or cut signature, in which a bracket directly follows a word. Names of operators,
annotations and Python functions can also contain brackets, but they must not be changed.
"""

NOISE_WORDS = frozenset(TABLE["noise"]["words"])
"""Words in C++ names that don't describe the purpose of a kernel."""


@dataclass(frozen=True)
class Symbol:
    """The parts of a kernel symbol that a short name contains.

    - namespace: the qualifiers, starting with the outermost one.
    - name: the function's own name.
    - words: every word in the template arguments, in order.
    - arguments: the top-level template arguments as strings. The list is empty for a mangled
      symbol.
    """

    namespace: tuple[str, ...]
    name: str
    words: tuple[str, ...]
    arguments: tuple[str, ...] = ()


def parse(text: str) -> Symbol | None:
    """Return the parts of a C++ symbol, or None if `text` isn't such a symbol."""
    return _parse_mangled(text) if text.startswith("_Z") else _parse_demangled(text)


def plain_arguments(symbol: Symbol) -> list[str]:
    """Return the template arguments that are numbers, flags or types. Each argument is shortened to
    one word.
    """
    return [text for text in map(_argument, symbol.arguments or symbol.words) if text]


def _argument(text: str) -> str:
    """Return one template argument as a short word. For example, `c10::Half` becomes fp16, `128ul`
    becomes 128, `(ggml_type)12` becomes 12, and a class becomes an empty string.
    """
    text = text.rpartition(")")[2] if text.startswith("(") else text
    number = re.fullmatch(r"(-?\d{1,6})u?l{0,2}", text)
    if number:
        return number.group(1)
    if text in ("true", "false"):
        return text
    if text.startswith("&(") and len(text) < 40:
        return text[2:].partition("(")[0]
    word = text.removesuffix("*").rpartition("::")[2]
    return DATA_TYPES.get(word, "")


def _parse_demangled(text: str) -> Symbol | None:
    text = text.replace("(anonymous namespace)::", "").replace("(anonymous class)", "")
    if not _DEMANGLED.fullmatch(text):
        return None
    for spelling, word in TABLE["two_word_types"].items():
        text = text.replace(spelling, word)
    qualified, template = _function_of(text)
    parts = [part for part in qualified.split("::") if part]
    if not parts:
        return None
    return Symbol(
        namespace=tuple(parts[:-1]),
        name=parts[-1],
        words=tuple(_WORD.findall(template)),
        arguments=tuple(_split_arguments(template)),
    )


def _function_of(text: str) -> tuple[str, str]:
    """Return the qualified name without template arguments, and the template arguments of the
    name's last part.
    """
    name = template = ""
    opened = 0
    depths = [0, *_depths(text)]
    for position, character in enumerate(text):
        before, after = depths[position : position + 2]
        if before == 0 and after:
            # The parameters end the name, so the rest isn't part of it.
            if character == "(" and name:
                break
            opened = position + 1
        elif before and not after:
            template = text[opened:position]
        elif not before and character == " ":
            # The text so far was the return type, such as `void`.
            name = template = ""
        elif not before:
            # Template arguments before `::` belong to a class, not to the function.
            template = "" if character == ":" else template
            name += character
    return name, template


def _depths(text: str) -> list[int]:
    """Return the number of brackets that are open after each character."""
    depth = 0
    depths = []
    for position, character in enumerate(text):
        if character in "<({[":
            depth += 1
        elif character in ">)}]" and depth and text[position - 1] != "-":
            depth -= 1
        depths.append(depth)
    return depths


def _split_arguments(template: str) -> list[str]:
    commas = [
        position
        for position, depth in enumerate(_depths(template))
        if depth == 0 and template[position] == ","
    ]
    edges = zip([-1, *commas], [*commas, len(template)], strict=True)
    return [template[start + 1 : end].strip() for start, end in edges] if template else []


def _parse_mangled(text: str) -> Symbol | None:
    namespace: list[str] = []
    words: list[str] = []
    nested = text.startswith("_ZN")
    in_template = False
    position = 2
    while item := _ITEM.match(text, position):
        position = item.end()
        found = item["literal"] or ("lambda" if item["lambda"] else "")
        if item["length"]:
            position += int(item["length"])
            found = text[item.end() : position]
        if found:
            (words if in_template else namespace).append(found)
        # The name ends at its template arguments (`I`), at the `E` of a nested name, or after one
        # word if it isn't nested. All later words belong to arguments.
        opens = item["literal"] or item["lambda"] or item["types"]
        ends = opens or not nested or text.startswith("E", position)
        in_template = in_template or bool(namespace and ends)
        while opens and (builtin := _BUILTIN.match(text, position)):
            words.append(_BUILTIN_TYPES[builtin[0]])
            position = builtin.end()
    if not namespace:
        return None
    *outer, name = namespace
    return Symbol(namespace=tuple(outer), name=name, words=tuple(words))


_WRAPPERS = re.compile(
    r"([AB]Unary|Binary|UnaryOp|Zero)Functor"
    r"|(BinaryOp|TernaryOp|PointwiseOp)(Scalar|ScalarList|ScalarTensor|List|ListAlpha)Functor"
    r"|ReduceOp|func_wrapper_t|gpu_kernel_impl|gpu_kernel_impl_nocast|elementwise_kernel"
    r"|(opmath_|opmath_symmetric_)?gpu_kernel(_with_scalars)?"
)
_OPERATION = re.compile(r"_kernel|Kernel|Functor|_functor|Ops$|^launch_|_cuda(_|$)|_gpu$")
_STANDARD_OPERATIONS = re.compile(
    r"plus|minus|multiplies|divides|maximum|minimum|Sqrt|Abs|Exp|Log|Neg|Sigmoid|Tanh|Round|Floor"
    r"|Ceil|Trunc"
    r"|Reciprocal|Minimum|Maximum|Sin|Cos|Erf"
)
_AFFIXES = re.compile(
    r"^(launch_|CUDAFunctorOnSelf_|CUDAFunctorOnOther_|CUDAFunctor_|_+)"
    r"|(_kernel_cuda|_cuda_kernel|_cuda_out|_cuda_?|_gpu|_kernel_impl|_kernel|_impl"
    r"|CUDAKernelImpl|CUDAKernel"
    r"|KernelImpl|Kernel|_functor|MathFunctor|Functor|Ops|Op|_stub)$"
)


def native_name(symbol: Symbol, room: int) -> str | None:
    """Return a name such as `elementwise mul fp32 vec4`, or None if the kernel doesn't come from
    one of these templates.

    The templates cover elementwise kernels, reductions and multi-tensor (foreach) operations. If
    the name of a multi-tensor operation has more than `room` characters, the form of its operands
    is left out.
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


def _wrapper(symbol: Symbol) -> str:
    """Return the form of a multi-tensor operation's operands, such as `BinaryOpScalar` or
    `PointwiseOpScalarList`.
    """
    return next(
        (word.removesuffix("Functor") for word in symbol.words if _WRAPPERS.fullmatch(word)), ""
    )


def _operation(symbol: Symbol) -> list[str]:
    """Return the operation and the data type of a PyTorch template. Both come from the functor
    inside the template's wrappers.
    """
    words = [word for word in symbol.words if word not in NOISE_WORDS]
    index = _operation_index(words)
    if index is None:
        return []
    name = _operation_name(words[index])
    wrappers = [at for at, word in enumerate(words[:index]) if _WRAPPERS.fullmatch(word)]
    scalar = any(words[at] in ("AUnaryFunctor", "BUnaryFunctor") for at in wrappers)
    by_position = "with_index" in symbol.name or re.search("index|scatter", name)
    return [
        name,
        *(["scalar"] if scalar else []),
        "" if by_position else _data_type(words, wrappers, index),
    ]


def _operation_index(words: list[str]) -> int | None:
    """Return the index of the word that names the operation. If no word is certain to name it,
    return the index of the first possible word, or None if there is no such word.
    """
    possible = [
        index
        for index, word in enumerate(words)
        if not (_WRAPPERS.fullmatch(word) or word in DATA_TYPES or word[0].isdigit())
        and "Metadata" not in word
    ]
    certain = (
        index
        for index in possible
        if _OPERATION.search(words[index]) or _STANDARD_OPERATIONS.fullmatch(words[index])
    )
    return next(certain, possible[0] if possible else None)


def _operation_name(word: str) -> str:
    is_scalar = word.startswith("CUDAFunctorOn")
    # A word has at most two affixes.
    word = _AFFIXES.sub("", _AFFIXES.sub("", word)) or word
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    return f"{word} scalar" if is_scalar else word


def _data_type(words: list[str], wrappers: list[int], operation: int) -> str:
    """Return an operation's element type, or an empty string if the symbol doesn't contain it.

    `wrappers` and `operation` are indices of words. The first choice is a wrapper's first argument,
    which is the tensors' type. The functor inside the wrapper may compute in a wider type. The
    second choice is the functor's own argument. The last choice is the parameter types of the
    innermost lambda.
    """
    for position in (*wrappers, operation):
        if position + 1 < len(words) and words[position + 1] in DATA_TYPES:
            return DATA_TYPES[words[position + 1]]
    for position in range(operation, len(words) - 1):
        if (
            words[position] == "lambda"
            and not words[position + 1][0].isdigit()
            and words[position + 1] != "void"
        ):
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
