"""What did the compiler make of your Triton kernels? Registers, spills, LDS and waves on an AMD
GPU; none is needed.

    python 16_compiler.py ~/.triton/cache     # what was compiled here, or torch.compile's `triton`
    python 16_compiler.py                     # an example; needs triton (tried: 3.6, 3.7, 3.9)

For a kernel of your own (this file beside it as compiler.py):

    from compiler import compile_for, facts_of
    types, constants = {"x": "*bf16", "n": "i32"}, {"block": 1024}
    file = compile_for("gfx942", kernel, types, constants, "compiled", num_warps=4)
    print(facts_of(file))

"*bf16" is a pointer. All that is no constant counts as divisible by 16, as where Triton sees sizes
and addresses that are; name what is not in `odd`. gfx90a is an MI200, gfx942 an MI300, gfx950 an
MI350.
"""

import json
import re
import sys
from pathlib import Path

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

# Per compute unit: LDS in bytes, and in blocks of how many it is given out. LLVM's guide to its
# AMDGPU back end.
LDS = {"gfx90a": (65536, 512), "gfx942": (65536, 512), "gfx950": (163840, 1280)}


def compile_for(target, kernel, signature, constants, folder, odd=(), **options):
    """Compile for an AMD GPU; the path of the assembly, which lies beside a JSON with the launch's
    settings.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    aligned = [place for place, name in enumerate(types) if name in signature and name not in odd]
    attributes = {(place,): [["tt.divisibility", 16]] for place in aligned}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=attributes)
    compiled = triton.compile(source, target=GPUTarget("hip", target, 64), options=options)
    file = Path(folder, f"{compiled.metadata.name}.amdgcn")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(compiled.asm["amdgcn"])
    kept = ("name", "num_warps", "num_stages", "waves_per_eu", "shared")
    settings = {name: getattr(compiled.metadata, name) for name in kept}
    file.with_suffix(".json").write_text(
        json.dumps({**settings, "triton_version": triton.__version__})
    )
    return file


def blocks(amount, block):
    """The amount as it is given out."""
    return -(-amount // block) * block


def facts_of(file):
    """What the assembly and the JSON beside it state, and the wavefronts that a SIMD can hold at a
    time.
    """
    text, settings = file.read_text(), json.loads(file.with_suffix(".json").read_text())
    facts = {
        name: int(number)
        for name, number in re.findall(r"^(?:    |  - )\.(\w+): +(\d+)$", text, re.MULTILINE)
    }
    target = re.search(r"\.amdgcn_target \"\S*?(gfx\w+)", text)[1]
    spills = len(re.findall(r"^\s+(?:scratch_|buffer_.* Folded )", text, re.MULTILINE))
    found = {
        "target": target,
        "VGPR": facts["vgpr_count"],
        "AGPR": facts["agpr_count"],
        "LDS": settings["shared"],
    }
    found |= {
        "spilled": facts["vgpr_spill_count"],
        "spill code": spills,
        "warps": settings["num_warps"],
    }
    if target in LDS:
        whole, block = LDS[target]
        slots = 4 * min(
            8, 512 // blocks(max(1, found["VGPR"]), 8)
        )  # 4 SIMDs, 8 waves and 512 registers each
        groups = slots // found["warps"]
        if found["LDS"]:
            groups = min(groups, whole // blocks(found["LDS"], block))
        found["waves"] = groups * found["warps"] / 4
    return found


def example(folder):
    """Compile a kernel that adds two vectors."""

    @triton.jit
    def add(x, y, out, n, block: tl.constexpr):
        place = tl.program_id(0) * block + tl.arange(0, block)
        total = tl.load(x + place, place < n) + tl.load(y + place, place < n)
        tl.store(out + place, total, place < n)

    types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
    return compile_for("gfx942", add, types, {"block": 1024}, folder, num_warps=4)


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "compiled").expanduser()
    if len(sys.argv) > 1:
        files = sorted(root.rglob("*.amdgcn"))
    elif triton is None:
        sys.exit(
            "triton is not installed here: pip install triton (not over that of a ROCm torch), or"
            " name a folder"
        )
    else:
        files = [example(root)]
    for file in files:
        words = (
            f"{name} {value:g}" if name != "target" else value
            for name, value in facts_of(file).items()
        )
        print(
            file.relative_to(root).with_suffix(""), *words
        )  # the folder tells variants of a kernel apart
    if not files and any(root.rglob("*.amdgcn.gz")):
        sys.exit(
            f"{root}: only packed *.amdgcn.gz here: unpack a copy of the folder (gunzip -r), then"
            " name that"
        )
    if not files:
        sys.exit(f"{root}: no *.amdgcn here, so nothing was compiled for an AMD GPU")
