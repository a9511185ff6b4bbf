"""Short, readable names and coarse categories for GPU kernels.

Kernel names come from many generators: Tensile and hipBLASLt (`Cijk_...`), MIOpen, composable
kernel, Triton, PyTorch's C++ templates, RCCL, and the ROCm runtime. A short name keeps the parts
that identify the kernel to a reader, such as the operation, the data type and the tile. Because a
short name omits the other parts, tables also keep the full name, and `unique_short_names` keeps
different kernels apart.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from tidyprof.names.cpp_symbols import (
    DATA_TYPES,
    NOISE_WORDS,
    TABLE,
    Symbol,
    native_name,
    parse,
    plain_arguments,
)

MAXIMUM_LENGTH = 60
"""Maximum number of characters in a short name. This length fits in a table or an axis label."""

CATEGORIES = (
    "GEMM",
    "convolution",
    "attention",
    "normalization",
    "reduction",
    "elementwise",
    "optimizer",
    "copy",
    "collective",
    "other",
)
"""Categories of device events by purpose. `category` returns one of these categories."""

_EXAMINED = 8192
"""Maximum number of characters of a name that are parsed. Long before this limit, the parts of real
symbols start to repeat.
"""

_REMEMBERED = 2**12
"""Number of cached names with their descriptions. The cache is useful because different ranks run
the same kernels.
"""

_UNWANTED = str.maketrans(dict.fromkeys("<>{}", " "))
_SUFFIXES = (" [clone .kd]", "[clone .kd]", " (.kd)", ".kd")
_TRANSPOSES = {"Ailk": "N", "Alik": "T", "Bljk": "N", "Bjlk": "T"}
_TENSILE_TOKEN = re.compile(r"I8|F8N?|B8N?|[HBSDCZIX]")
_IGEMM_OPTIONS = {"ex1": "ex1", "gkgs": "split-K", "vs1": "vs1"}
_GENERIC_NAMES = frozenset(
    {"kernel", "Kernel", "Kernel2", "kernel_wrapper", "kentry", "globalKernel"}
)


def short_name(name: str) -> str:
    """Return a kernel's short name. The short name has 1 to 60 characters and contains no angle
    brackets or line breaks.

    The function accepts any string. If a string isn't a kernel name but fits, it is returned
    unchanged. A name that was cut ends in `~` and four hexadecimal digits of the full name's hash,
    which keep the short name distinct.

    >>> template = "void at::native::vectorized_elementwise_kernel<4, {}>(int)"
    >>> tidyprof.short_name(template.format("at::native::FillFunctor<float> "))
    'elementwise fill fp32 vec4'
    """
    return _fit(_description(name), name)


def _description(name: str) -> str:
    """Return the short name before it is cut to the maximum length."""
    return _description_of_plain(plain_name(name)[:_EXAMINED])


@lru_cache(_REMEMBERED)
def _description_of_plain(text: str) -> str:
    for family in (_tensile, _miopen, _runtime):
        short = family(text)
        if short:
            return short
    symbol = parse(text)
    return _from_symbol(symbol) if symbol else text


def plain_name(name: str) -> str:
    """Return the kernel name without additions from profilers, such as `.kd`, `[clone .kd]`, line
    breaks and control characters.
    """
    if not name.isprintable():
        name = "".join(character for character in name if character.isprintable())
    text = " ".join(name.split())
    end = len(text)
    while end:
        for suffix in _SUFFIXES:
            if text.endswith(suffix, 0, end):
                end -= len(suffix)
                break
        else:
            break
    return text[:end] if end else text


def unique_short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each raw name. Distinct raw names have distinct short names.

    If several names have the same short name, `#` and digits of the full name's hash are added. A
    kernel has the same hash suffix in every file.
    """
    raw = list(dict.fromkeys(names))
    short = {name: short_name(name) for name in raw}
    for digits in (4, 8, 16, 32):
        shared = {text for text, count in Counter(short.values()).items() if count > 1}
        if not shared:
            break
        for name in raw:
            if short[name] in shared:
                suffix = f"#{_digest(name, digits)}"
                short[name] = short_name(name)[: MAXIMUM_LENGTH - len(suffix)] + suffix
    return short


def _digest(text: str, digits: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()[
        :digits
    ]


def _fit(text: str, name: str) -> str:
    """Return the text with at most `MAXIMUM_LENGTH` characters. If the text exceeds this length,
    its middle is removed.

    Angle brackets and braces are removed because they can break HTML and confuse readers.
    """
    text = " ".join(text.translate(_UNWANTED).split())
    if not text:
        return f"unnamed~{_digest(name, 4)}" if name else "unnamed"
    if len(text) <= MAXIMUM_LENGTH:
        return text
    return f"{text[:30].rstrip()}…{text[-24:].lstrip()}~{_digest(name, 4)}"


def _tensile(text: str) -> str | None:
    """Return the short name of a GEMM. For example, `Cijk_Alik_Bljk_BBS_BH_..._MT256x192x64_...`
    becomes `GEMM TN bf16 MT256x192x64`.

    The index order of A and B determines the transposes in BLAS terms. After the indices, the name
    contains the data types (input, output, computation) and the macro tile
    (https://rocm.docs.amd.com/projects/Tensile).
    """
    text = text.removeprefix("Custom_")
    if not text.startswith(("Cijk_", "Dijk_")):
        return None
    parts = text.split("_")
    tile = next((part for part in parts if re.match(r"MT\d+x", part)), None)
    if tile is None or len(parts) < 5:
        return "GEMM " + " ".join(parts[1:])
    transposes = _TRANSPOSES.get(parts[1], "?") + _TRANSPOSES.get(parts[2], "?")
    streams = ["stream-K" for part in parts if re.fullmatch(r"SK[1-9]\d*", part)]
    return " ".join(["GEMM", transposes, _tensile_types(parts[3], parts[4]), tile, *streams])


def _tensile_types(code: str, flags: str) -> str:
    tokens = _TENSILE_TOKEN.findall(code)
    known = [TABLE["tensile_types"].get(token.rstrip("N"), token) for token in tokens]
    # Only names with `<input><output><computation>_<flags>` contain an output type. Older names
    # append the flags to one type.
    if len(known) == 3 and re.fullmatch(r"B?H?", flags) and known[0] != known[1]:
        return f"{known[0]}-{known[1]}"
    return known[0] if known else code


def _miopen(text: str) -> str | None:
    parts = text.split("_")
    if text.startswith("igemm_"):
        # igemm_<direction>_<instruction set>_<layout>_<type>_bx_ex_bt<block tile>_...
        tiles = [part for part in parts[5:] if re.match(r"bt\d+x", part)]
        extras = [_IGEMM_OPTIONS[part] for part in parts[5:] if part in _IGEMM_OPTIONS]
        return " ".join(["conv", *parts[1:2], "igemm", *parts[3:5], *tiles, *extras])
    if text.startswith("miopenSp3AsmConv"):
        kept = re.compile(r"fp\d+|bf16|f\dx\d|stride|dilation|group")
        return " ".join(["conv Winograd", *filter(kept.match, parts[1:])])
    return None


def _runtime(text: str) -> str | None:
    """Return torch.profiler's name for a copy or fill, such as `Memcpy HtoD (Pinned -> Device)`."""
    match = re.fullmatch(r"(Memcpy \w+|Memset) \((.{0,60})\)", text)
    if not match:
        return None
    kind = next((word.lower() for word in ("Pinned", "Pageable") if word in match.group(2)), "")
    return f"{match.group(1)} {kind}"


def _from_symbol(symbol: Symbol) -> str:
    name = symbol.name
    if name in _GENERIC_NAMES:
        return _from_generic(symbol)
    if "ck" in symbol.namespace[:1] or "ck_tile" in symbol.namespace[:1]:
        numbers = [word for word in symbol.words if word.isdigit() and int(word) > 1]
        return " ".join(["ck", name.removeprefix("kernel_"), ",".join(numbers[:4])])
    return native_name(symbol, MAXIMUM_LENGTH) or _with_arguments(name, symbol)


def _with_arguments(name: str, symbol: Symbol) -> str:
    """Return the name followed by as many plain template arguments as fit."""
    for argument in plain_arguments(symbol):
        longer = f"{name},{argument}" if " " in name else f"{name} {argument}"
        if len(longer) > MAXIMUM_LENGTH:
            break
        name = longer
    return name


def _from_generic(symbol: Symbol) -> str:
    """Return a short name for a function with a generic name such as `kernel`.

    The short name comes from the class among the template arguments. If there is no such class, the
    short name comes from the namespace.
    """
    inner = [word for word in symbol.words if not word[0].isdigit() and word not in NOISE_WORDS]
    inner = [word for word in inner if word not in DATA_TYPES and word not in symbol.namespace]
    spaces = [space for space in symbol.namespace if space not in NOISE_WORDS]
    place = spaces[-1:]
    if inner and symbol.name != "kernel":
        return " ".join([*(place if symbol.name != "Kernel" else ()), inner[0]])
    return _with_arguments("::".join([*place, symbol.name]), symbol)


_CATEGORY_RULES = {
    name: re.compile(pattern, re.IGNORECASE) for name, pattern in TABLE["categories"].items()
}

_CATEGORY_OF_KIND = {"collective": "collective", "copy": "copy", "fill": "copy"}


def category(name: str, kind: str) -> str:
    """Return the category from `CATEGORIES` for a device event with this name and kind (see
    contract.KINDS).

    The first matching word in the name determines the category, so the category is only a reading
    aid. Kernels of PyTorch's multi-tensor operations count as optimizer kernels because nearly all
    of them run in the optimizer. Kinds that run on the host have the category `other`.
    """
    if kind != "kernel":
        return _CATEGORY_OF_KIND.get(kind, "other")
    return _category_of_description(_description(name))


@lru_cache(_REMEMBERED)
def _category_of_description(text: str) -> str:
    found = (name for name, pattern in _CATEGORY_RULES.items() if pattern.search(text))
    return next(found, "other")
