# %% [markdown]
# # What did the compiler make of my kernel?
#
# You write a kernel in Triton, or `torch.compile` writes one for you. A compiler then decides what lies in registers,
# and how many wavefronts fit. All of it stands in a file, which you can read without a GPU.
#
# After this lesson you can
#
# - compile a kernel for a GPU that is not there, and read registers, spills and LDS;
# - compute the occupancy by hand, and say what limits it;
# - choose a tile that spills on none of your GPUs, and keep it so after an upgrade.
#
# You need lessons 00 and 05, and Triton to compile yourself (`make compiler`). Without it the lesson shows what was
# compiled before. Numbers are *compiled*: nothing ran, so none says how fast a kernel is.

# %%
import gzip
import re
import shutil
from pathlib import Path

import pandas as pd
import proflab
import tidyprof
from proflab import exercise, show_table, show_text

lesson = proflab.start("16")
folder = lesson.folder
shutil.copy(lesson.file("kernels.py"), folder)
shutil.copy(lesson.file("../../snippets/16_compiler.py"), folder / "compiler.py")
shutil.rmtree(folder / "mine", ignore_errors=True)
shipped = Path(shutil.copytree(lesson.file("compiled"), folder / "compiled", dirs_exist_ok=True))

# %%
lesson.recall()

# %% [markdown] tags=["given"]
# ## The picture to keep in mind
#
# A workgroup takes *LDS*, memory inside its compute unit. Each of its wavefronts takes a *wave slot* and, in eights,
# *vector registers* (VGPR). What runs out first limits how many wavefronts fit. On MI200, MI300 and MI350:
#
# {drawing 16_tile}
#
# From [AMD's table][amd] and [LLVM's guide][llvm]. CDNA 5 (MI400, gfx1250) differs: wavefronts of 32, 1,024 vector
# registers, no AGPRs, 320 KiB of LDS.
#
# | word | meaning |
# | --- | --- |
# | *tile* | the part of the result that one workgroup computes |
# | *warp* | Triton's word for a wavefront; `num_warps` of them make a workgroup |
# | *AGPR* | accumulation registers, which matrix instructions use; they are part of the 512 |
# | *spill* | a value that found no register: it goes to memory, *scratch*, and comes back |
# | *occupancy* | wavefronts that a SIMD holds at a time |
#
# [amd]: https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html
# [llvm]: https://llvm.org/docs/AMDGPUUsage.html

# %% [markdown]
# ## Why anybody wants large tiles
#
# A product reads a tile of `rows` x `depth` and one of `depth` x `columns`, in two bytes each, and computes `2 * rows *
# columns * depth`. So its intensity, the word from lesson 05, depends on the tile alone: `rows * columns / (rows +
# columns)`. Twice the side, twice the intensity. But its sums stay in registers, and grow with the square.
#
# ## Predict
#
# A product in bfloat16 for an MI300X, with four warps.

# %%
# solution
registers_guess, spills_guess = 100, 0
# end solution
proflab.predict(
    "16.a", registers_guess, unit="registers", what="a work-item of the tile 128 x 128 x 64"
)
proflab.predict(
    "16.b", spills_guess, unit="spilled values", what="a work-item of the tile 256 x 256 x 64"
)

# %% [markdown]
# ## Capture: compile
#
# The two kernels: a product, and a sum fused with a normalization, as `torch.compile` writes them (lesson 10).

# %%
print((folder / "kernels.py").read_text().partition("@triton.jit\n")[2].partition("MATRICES =")[0])

# %% [markdown]
# `compile_for`, from the snippet at the end, names a target instead of asking for a GPU. `gfx942` is an MI300, `gfx950`
# an MI350.

# %% language="bash"
# cd $FOLDER
# python kernels.py compiler.py mine 2>&1 | tail -n 1

# %% [markdown]
# What follows reads files that three versions of Triton compiled before, the same for everybody.


# %%
def table_of(path):
    kernels = tidyprof.read_assembly(path)
    table = kernels.join(tidyprof.occupancy(kernels))
    table["case"] = table["file"].str.rpartition("/")[0].str.rpartition("/")[2]
    return table, kernels.attrs["origin"]


newest = shipped / "3.9.0"
table, origin = table_of(newest)
cases = table.set_index("case")
if (folder / "mine").is_dir():
    mine, own_origin = table_of(folder / "mine")
    same = mine.set_index("case")["vgprs"].eq(cases["vgprs"]).sum()
    show_text(
        f"Yours ({own_origin}): as many registers as in the shipped files in {same} of "
        f"{len(cases)} kernels."
    )

# %% [markdown]
# ## First look: one command

# %% language="bash"
# python -m tidyprof isa $FOLDER/compiled/3.9.0

# %% [markdown]
# `spilled` counts spilled values: what the code puts away, anywhere in the kernel. `scratch B` is the memory that each
# work-item gets for them. `16 x 16 B` under `loads`: 16 lines of code that each bring a lane 16 bytes.
#
# ## Look by hand
#
# At the end of the assembly stand the compiler's own numbers. Triton's JSON has what the launch adds: warps, and LDS as
# `shared`.


# %%
def text_of(case):
    return gzip.decompress((newest / case / "matmul.amdgcn.gz").read_bytes()).decode()


def stated(case, *names):
    found = dict(re.findall(r"^(?:    |  - )\.(\w+): +(\d+)$", text_of(case), re.MULTILINE))
    return {name: int(found[name]) for name in names}


print(stated("256x256x64", "vgpr_count", "vgpr_spill_count", "private_segment_fixed_size"))
print(stated("128x128x64", "vgpr_count", "agpr_count", "group_segment_fixed_size"))
print((newest / "128x128x64" / "matmul.json").read_text())

# %% [markdown]
# Three things mislead:
#
# - `vgpr_count` includes the accumulation registers: don't add `agpr_count`.
# - `group_segment_fixed_size` is 0, although the kernel uses LDS: Triton asks for it at launch.
# - `vgpr_spill_count` is not how many spilled values lie in memory at a time. It counts [each that is
#   stored](https://llvm.org/docs/AMDGPUUsage.html), anywhere in the code. Scratch, of four bytes a register, has
#   fewer places, so values share them, one after the other. That is a deduction: the file doesn't list them.
#
# At least the sums need registers: float32, one each, shared by the lanes of all warps. The rest holds inputs on their
# way, addresses, and what is loaded ahead.

# %%
SIDES = (64, 128, 256)
bars = cases.loc[[f"{side}x{side}x64" for side in SIDES], ["vgprs", "spilled_vgprs"]].reset_index()
bars["intensity"] = [side * side / (side + side) for side in SIDES]
bars["sums"] = [side * side / (4 * 64) for side in SIDES]  # four warps of 64 lanes
columns = "case intensity sums vgprs spilled_vgprs"
show_table(bars, columns, "Registers of a work-item, of 512 at most, for four warps", origin=origin)

# %% [markdown]
# **Occupancy.** How many wavefronts fit on a SIMD? Eight at most, one for each wave slot. Registers are given out in
# eights. A workgroup fits whole or not at all, and its warps are spread over four SIMDs: of four warps each SIMD gets
# one. LDS is given out in blocks, too, of 512 bytes, on an MI350 of 1,280. The command rounds up; here it changes
# nothing.


# %%
def waves_by_registers(vgprs):
    given = -(-vgprs // 8) * 8
    return min(8, 512 // given)


row = cases.loc["128x128x64"]
by_lds = 64 * 1024 // row["lds_bytes"] * row["warps"] / 4
show_text(
    f"The tile of 128 x 128 on gfx942: {waves_by_registers(row['vgprs'])} by registers, "
    f"{by_lds:g} by LDS."
)

# %%
# 4 minutes: a kernel needs what `limits` says. How many wavefronts of it does a SIMD of an MI350 hold at a time?
limits = {"vgprs": 100, "lds_bytes": 20480, "warps": 4}
q = exercise("16.1", limits)
# solution
workgroups = 160 * 1024 // limits["lds_bytes"]
answer = min(waves_by_registers(limits["vgprs"]), workgroups * limits["warps"] / 4)
# end solution
q.check(answer)

# %% [markdown]
# **Where are the spills?** A spill before the loop costs once. In the loop it costs in each step.


# %%
def loop_of(case):
    return re.search(
        r"^(\.LBB\w+):[^\n]*Loop Header.*?^\s+s_cbranch\w+ \1$",
        text_of(case),
        re.DOTALL | re.MULTILINE,
    )[0]


large = text_of("256x256x64")
print("\n".join(re.findall(r"^.*Folded .*$", large, re.MULTILINE)[:4]))

# %% [markdown]
# The code has one step in the loop and one behind it: the next tile is loaded while this one is multiplied, and the
# last step has none to load.

# %%
# 3 minutes: how many instructions move spilled values in each step of the loop of `256x256x64`? Their names begin with
# `scratch_`.
q = exercise("16.2", large)
# solution
answer = len(re.findall(r"^\s+scratch_", loop_of("256x256x64"), re.MULTILINE))
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: fewer registers, more waves
#
# `waves_per_eu=4` asks the compiler to leave room for four wavefronts on a SIMD, which it calls an execution unit.

# %%
pair = cases.loc[["128x128x64", "128x128x64_4waves"]]
pair = pair.reset_index()[
    ["case", "vgprs", "spilled_vgprs", "lds_bytes", "waves_by_registers", "waves_by_lds", "waves"]
]
show_table(pair, " ".join(pair), "The same tile, asked for four waves", origin=origin)
claimed = re.search(r"; Occupancy: (\d+)", text_of("128x128x64_4waves"))[1]
show_text(f"The compiler's own comment in the second file says `Occupancy: {claimed}`.")

# %% [markdown]
# No wavefront more, but spills: the compiler does not know the LDS of the launch. And occupancy is not speed.
# Wavefronts hide waiting: a product that keeps the matrix units busy with two of them needs no more.
#
# ## Trap: it fits on my GPU
#
# The large tile, on two GPUs, with four warps and with eight:

# %%
wide = cases[cases.index.str.startswith("256x256x64")].reset_index()
wide["setting"] = wide["case"].str.removesuffix("_gfx950")
columns = ["setting", "target", "vgprs", "lds_bytes", "spilled_vgprs", "waves", "limited_by"]
shown = wide[columns].sort_values(["setting", "target"])
show_table(shown, " ".join(shown), "Tiles of 256 x 256 x 64, on MI300 and MI350", origin=origin)

# %% [markdown]
# Eight warps share the sums among twice as many lanes, and cure one GPU. On the other one Triton takes more LDS, and
# the tile that was fine with four warps spills with eight.
#
# ## Trap: it fitted last year
#
# The same source, three versions of Triton. After an upgrade users saw attention kernels that took [three to four
# times][a] as long on an MI350. [The pull request][b] that looks for a cure counts their spilled registers.
#
# [a]: https://github.com/ROCm/aiter/issues/4137
# [b]: https://github.com/triton-lang/triton/pull/11249

# %%
versions = {path.name: table_of(path)[0] for path in sorted(shipped.iterdir())}
history = pd.concat(versions, names=["triton"]).reset_index()
history["setting"] = history["case"].str.removesuffix("_gfx950")
# Only what was compiled for both GPUs, with every version.
history = history[history.groupby("setting")["case"].transform("size") == 2 * len(versions)]
wanted = history[history["setting"] == "256x256x64"]
spills = wanted.pivot(
    index=["setting", "target"], columns="triton", values="spilled_vgprs"
).reset_index()
show_table(
    spills,
    " ".join(spills),
    "Spilled registers by version of Triton",
    origin=f"compiled: Triton {', '.join(versions)}",
)

# %% [markdown]
# A number of spills belongs to a kernel, a tile, a GPU and a version, and a new one of any of them needs a new look.
#
# ## Repair
#
# | knob | what it changes |
# | --- | --- |
# | tile | sums, and so registers and intensity |
# | `num_warps` | lanes that share the sums; all of them share the LDS of a workgroup |
# | depth of the tile | registers and LDS for what is loaded, not the intensity |
# | `num_stages` | tiles that are loaded ahead: one stage less halves the LDS, and makes room for waves |
# | `waves_per_eu` | how many registers the compiler may use |

# %%
# 3 minutes: `history` has each setting for both GPUs and three versions. Which one never spills there, and has the
# highest intensity?
q = exercise("16.3", history)
# solution
clean = history.groupby("setting")["spilled_vgprs"].sum().eq(0)
answer = max(clean[clean].index, key=lambda name: int(name.split("x")[0]))
# end solution
q.check(answer)

# %% [markdown]
# Whether it is the fastest, only a measurement says: `triton.testing.do_bench`, or lesson 04.
#
# ## A fused kernel
#
# `add_norm` adds and normalizes in one go. It reads two numbers and writes one; apart, the sum is written and read
# again: five.

# %%
rows = cases.loc[
    ["add_norm", "add_norm_odd"], ["vgprs", "lds_bytes", "waves", "limited_by", "loads"]
].reset_index()
show_table(
    rows,
    " ".join(rows),
    "The same kernel, a width that is divisible by 16 and one that is not",
    origin=origin,
)

# %% [markdown]
# Where Triton knows that the width is divisible by 16, each lane reads 16 bytes at once. Where it isn't, a row may
# begin anywhere, so `x` and `residual` are read number by number (2 bytes), and so is `weight` (4 bytes), whose mask,
# `column < width`, depends on the width. It costs more than loads: results pass through LDS, and fewer wavefronts fit.
# So pad the last dimension, and look at `loads` when one shape is slower than its neighbors.
#
# ## In your tests
#
# Triton's cache has all kernels of a run: in `~/.triton/cache`, or where `TRITON_CACHE_DIR` points.

# %%
# 2 minutes: write the shell command that reads the cache in `cache`, and fails if a kernel there spills.
cache = "ci/triton-cache"
q = exercise("16.4", cache)
# solution
answer = f"python -m tidyprof isa {cache} --fail-on-spill"
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# | you see | next |
# | --- | --- |
# | spills | a smaller tile or more warps, then look again |
# | no waves | it does not fit: less LDS |
# | loads of 1 or 2 bytes | pad the width, or tell Triton what is divisible |
# | none of these | it is worth a measurement |

# %%
proflab.reveal("16.a", int(cases.loc["128x128x64", "vgprs"]), origin)
proflab.reveal("16.b", int(cases.loc["256x256x64", "spilled_vgprs"]), origin)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# - Speed. Nothing ran. A kernel that spills a little before its loop may be the fastest.
# - How often a line runs: lines of code are counted.
# - Cache hits, conflicts in LDS, and whether the grid fills the GPU (lesson 05).
# - Kernels of libraries: hipBLASLt and MIOpen ship compiled code. rocprofv3 names registers and scratch of each kernel
#   that ran (lesson 04).
#
# Spills after an upgrade: see the [list of known
# issues](../docs/known-issues.md#triton-kernels-spill-registers-after-an-upgrade). `out of resource: shared memory` at
# launch: the tile needs more LDS than this GPU has, so fewer stages or less depth. No `.amdgcn` in the cache: the
# kernels were compiled for another GPU.

# %% [markdown]
# ## At work, without this course
#
# {snippet 16_compiler.py}

# %% [markdown]
# Next question: yours.
