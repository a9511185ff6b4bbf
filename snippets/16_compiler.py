"""Print the registers, spills, LDS and waves of compiled Triton kernels for AMD GPUs,
without a GPU.

    # kernels that ran here, also those of torch.compile
    python 16_compiler.py ~/.triton/cache
    # an example; requires triton (tested: 3.6, 3.7, 3.9)
    python 16_compiler.py

To compile your own kernel, save this file as compiler.py next to your script and add
these lines:

    from compiler import compile_for, facts_of

    types, constants = {"x": "*bf16", "n": "i32"}, {"block": 1024}
    file = compile_for("gfx942", kernel, types, constants, "compiled", num_warps=4)
    print(facts_of(file))

"*bf16" is a pointer. `compile_for` treats sizes and addresses as divisible by 16, as
Triton does for such values. List arguments that aren't divisible by 16 in `odd`. The
target gfx90a is an MI200, gfx942 is an MI300, and gfx950 is an MI350.
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

# LDS size per compute unit and LDS block size in bytes, from LLVM's AMDGPU guide
LDS = {"gfx90a": (65536, 512), "gfx942": (65536, 512), "gfx950": (163840, 1280)}


def compile_for(target, kernel, signature, constants, folder, odd=(), **options):
    """Compile a kernel for an AMD GPU, and return the path of the assembly file.

    A JSON file next to the assembly file contains the launch settings.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    aligned = [
        place
        for place, name in enumerate(types)
        if name in signature and name not in odd
    ]
    attributes = {(place,): [["tt.divisibility", 16]] for place in aligned}
    source = ASTSource(
        fn=kernel, signature=types, constexprs=constants, attrs=attributes
    )
    compiled = triton.compile(
        source, target=GPUTarget("hip", target, 64), options=options
    )
    file = Path(folder, f"{compiled.metadata.name}.amdgcn")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(compiled.asm["amdgcn"])
    kept = ("name", "num_warps", "num_stages", "waves_per_eu", "shared")
    settings = {name: getattr(compiled.metadata, name) for name in kept}
    settings["triton_version"] = triton.__version__
    file.with_suffix(".json").write_text(json.dumps(settings))
    return file


def blocks(amount, block):
    """Round `amount` up to a multiple of `block`."""
    return -(-amount // block) * block


def facts_of(file):
    """Return the kernel's data from the assembly and its JSON file, and the wavefronts
    that fit on a SIMD.
    """
    text, settings = file.read_text(), json.loads(file.with_suffix(".json").read_text())
    stated = dict(re.findall(r"^(?:    |  - )\.(\w+): +(\d+)$", text, re.MULTILINE))
    facts = {
        "target": re.search(r"\.amdgcn_target \"\S*?(gfx\w+)", text)[1],
        "VGPR": int(stated["vgpr_count"]),
        "AGPR": int(stated["agpr_count"]),
        "LDS": settings["shared"],
        "spilled": int(stated["vgpr_spill_count"]),
        "spill code": len(
            re.findall(r"^\s+(?:scratch_|buffer_.* Folded )", text, re.MULTILINE)
        ),
        "warps": settings["num_warps"],
    }
    if facts["target"] in LDS:
        whole, block = LDS[facts["target"]]
        # A compute unit has 4 SIMDs. Each SIMD has 8 wave slots and 512 registers.
        slots = 4 * min(8, 512 // blocks(max(1, facts["VGPR"]), 8))
        groups = slots // facts["warps"]
        if facts["LDS"]:
            groups = min(groups, whole // blocks(facts["LDS"], block))
        facts["waves"] = groups * facts["warps"] / 4
    return facts


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
    if len(sys.argv) == 1:
        if triton is None:
            sys.exit(
                "Triton isn't installed. Pass a folder with compiled kernels, or "
                "install Triton (pip install triton), but don't replace the Triton of "
                "a PyTorch for ROCm."
            )
        example(root)
    files = sorted(root.rglob("*.amdgcn"))
    for file in files:
        facts = facts_of(file)
        words = (
            f"{name} {value:g}" for name, value in facts.items() if name != "target"
        )
        # The folder name distinguishes variants of a kernel.
        print(file.relative_to(root).with_suffix(""), facts["target"], *words)
    if not files and any(root.rglob("*.amdgcn.gz")):
        sys.exit(
            f"The files in {root} are compressed. Unpack a copy with gunzip -r and "
            "pass the copy."
        )
    if not files:
        sys.exit(
            f"{root} contains no *.amdgcn, so no kernel there was compiled for an AMD "
            "GPU."
        )
