# %% [markdown]
# # What did the compiler make of my kernel?
#
# You write a kernel in Triton, or `torch.compile` writes one for you. The compiler then decides which values stay in
# registers and how many wavefronts fit on a compute unit. You can read these decisions in a file, without a GPU.
#
# After this lesson, you can:
#
# - compile a kernel for a GPU that you don't have, and read its register, spill and LDS counts;
# - compute the occupancy manually, and name the resource that limits it;
# - choose a tile size that avoids spills on all your GPUs, and check it again after an upgrade.
#
# **Before you start:** complete lessons 00 and 05. To compile the kernels yourself, install Triton (`make compiler`).
# Without Triton, the lesson uses files that we compiled earlier. All numbers are labeled *compiled*, because nothing
# ran on a GPU. They don't show how fast a kernel is.

# %%
import gzip
import re
import shutil

import pandas as pd
import proflab
import tidyprof
from proflab import exercise, show_table

lesson = proflab.start("16")
folder = lesson.folder
shutil.copy(lesson.file("kernels.py"), folder)
shutil.copy(lesson.file("../../snippets/16_compiler.py"), folder / "compiler.py")
shipped = shutil.copytree(
    lesson.file("compiled"), folder / "compiled", dirs_exist_ok=True
)

# %%
lesson.recall()

# %% [markdown] tags=["given"]
# ## The picture to keep in mind
#
# A workgroup uses *LDS*, a memory inside its compute unit. Each wavefront of the workgroup uses a *wave slot* and
# *vector registers* (VGPRs), in blocks of eight. The resource that runs out first limits how many wavefronts fit. The
# drawing covers the MI200, MI300 and MI350:
#
# {drawing 16_tile}
#
# The numbers come from [AMD's table][amd] and [LLVM's guide][llvm]. In contrast, CDNA 5 (MI400, gfx1250) has wavefronts
# of 32 lanes, 1,024 vector registers, no AGPRs and 320 KiB of LDS.
#
# | word | meaning |
# | --- | --- |
# | *tile* | the part of the result matrix that one workgroup computes |
# | *warp* | Triton's word for a wavefront; a workgroup has `num_warps` of them |
# | *AGPR* | accumulation register, used by matrix instructions; AGPRs count toward the 512 registers |
# | *spill* | a value that doesn't fit in registers, so it moves to memory (*scratch*) and back |
# | *occupancy* | the number of wavefronts that a SIMD holds at the same time |
#
# [amd]: https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html
# [llvm]: https://llvm.org/docs/AMDGPUUsage.html

# %% [markdown]
# ## Why large tiles are attractive
#
# For each tile of the result, a matrix product loads `rows` x `depth` and `depth` x `columns` values of two bytes. It
# performs `2 * rows * columns * depth` operations on them. Its arithmetic intensity (lesson 05) is therefore `rows *
# columns / (rows + columns)`. A tile with sides twice as long has twice the intensity. However, its sums stay in
# registers, and their number grows with the square of the side.
#
# ## Predict
#
# The kernel is a bfloat16 matrix product for an MI300X, with four warps per workgroup.

# %%
# solution
registers_guess, spills_guess = 100, 0
# end solution
registers_text = "each work-item of the tile 128 x 128 x 64"
proflab.predict("16.a", registers_guess, unit="registers", what=registers_text)
spills_text = "each work-item of the tile 256 x 256 x 64"
proflab.predict("16.b", spills_guess, unit="spilled values", what=spills_text)

# %% [markdown]
# ## Capture: compile
#
# There are two kernels: a matrix product, and a fused addition and normalization like those that `torch.compile` writes
# (lesson 10).

# %% language="bash"
# sed -n '/^def matmul/,/^MATRICES/p' $FOLDER/kernels.py | head -n -1

# %% [markdown]
# `compile_for`, from this lesson's snippet, compiles for the target that you name (`gfx942` for an MI300, `gfx950` for
# an MI350). Compiling 16 variants takes about half a minute.

# %% language="bash"
# cd $FOLDER && rm -rf mine
# python kernels.py compiler.py mine 2> compile.err || tail -n 1 compile.err

# %% [markdown]
# The rest of the lesson reads the files that we compiled earlier.


# %%
def table_of(path):
    kernels = tidyprof.read_assembly(path)
    table = kernels.join(tidyprof.occupancy(kernels))
    table.attrs = kernels.attrs
    return table.assign(case=table["file"].str.split("/").str[-2])


newest = shipped / "3.9.0"
cases = table_of(newest).set_index("case")
origin = cases.attrs["origin"]

# %% language="bash"
# python -m tidyprof isa $FOLDER/compiled/3.9.0

# %% [markdown]
# - `spilled` counts the values that the code stores to memory anywhere in the kernel.
# - `scratch B` is the memory for spilled values per work-item, in bytes.
# - `16 x 16 B` under `loads` means that 16 instructions each load 16 bytes per lane.
#
# ## Read the assembly manually
#
# The compiler's own numbers are at the end of the assembly. Triton's JSON file adds the launch settings, such as the
# number of warps and the LDS size (`shared`).

# %% language="bash"
# cd $FOLDER/compiled/3.9.0
# for case in 256x256x64 128x128x64; do
#     zcat $case/matmul.amdgcn.gz | grep -E '^ .* \.([av]gpr_|private_|group_)' |
#         sed "s/^/$case/"
# done
# cat 128x128x64/matmul.json

# %% [markdown]
# Three of these numbers are misleading:
#
# - `vgpr_count` already includes accumulation registers, so don't add `agpr_count`.
# - `group_segment_fixed_size` is 0 even if the kernel uses LDS, because Triton requests LDS at launch.
# - `vgpr_spill_count` isn't the number of spilled values in memory at one time. It counts [each value that is
#   stored](https://llvm.org/docs/AMDGPUUsage.html). At four bytes per register, scratch has room for fewer values, so
#   we conclude that values share a place in turn.
#
# The sums of a tile are split across the lanes of all warps. A work-item needs at least one register for each of its
# float32 sums. Its other registers hold inputs, addresses and prefetched data.

# %%
SIDES = (64, 128, 256)
bars = cases.loc[
    [f"{side}x{side}x64" for side in SIDES], ["vgprs", "spilled_vgprs"]
].reset_index()
bars["intensity"] = [side * side / (side + side) for side in SIDES]
# Four warps of 64 lanes
bars["sums"] = [side * side / (4 * 64) for side in SIDES]
columns = "case intensity sums vgprs spilled_vgprs"
show_table(
    bars,
    columns,
    "Registers per work-item (at most 512) with four warps",
    origin=origin,
)

# %% [markdown]
# **Occupancy.** How many wavefronts fit on a SIMD?
#
# - There are eight wave slots, so at most eight fit.
# - The GPU allocates registers in blocks of eight.
# - A workgroup fits as a whole or not at all, and its warps are spread over four SIMDs. With four warps, each SIMD gets
#   one warp.
# - The GPU allocates LDS in blocks of 512 bytes, or of 1,280 bytes on an MI350.


# %%
def waves_by_registers(vgprs):
    allocated = -(-vgprs // 8) * 8
    return min(8, 512 // allocated)


# %%
# 4 minutes: a kernel needs the resources in `limits`. How many wavefronts of this kernel fit on one SIMD of an MI350 at
# the same time?
limits = {"vgprs": 100, "lds_bytes": 20480, "warps": 4}
q = exercise("16.1", limits)
# solution
workgroups = 160 * 1024 // limits["lds_bytes"]
answer = min(waves_by_registers(limits["vgprs"]), workgroups * limits["warps"] / 4)
# end solution
q.check(answer)

# %% [markdown]
# **Where are the spills?** A spill in the loop costs time in every iteration.

# %%
with gzip.open(newest / "256x256x64" / "matmul.amdgcn.gz", "rt") as file:
    large = file.read()
loop = large.partition("Loop Header")[2].partition("s_cbranch")[0]
print(*re.findall(r"^.*Folded .*$", loop, re.MULTILINE)[:4], sep="\n")

# %% [markdown]
# The code contains the same step in the loop and after the loop. The loop loads the next tile while it multiplies the
# current one, but the last step has nothing left to load.

# %%
# 2 minutes: how many instructions in `loop` move spilled values? The names of these instructions start with `scratch_`.
q = exercise("16.2", large)
# solution
answer = len(re.findall(r"^\s+scratch_", loop, re.MULTILINE))
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: fewer registers, more waves
#
# `waves_per_eu=4` makes the compiler leave room for four wavefronts on each SIMD, called an *execution unit* in Triton.

# %%
pair = cases.loc[["128x128x64", "128x128x64_4waves"]].reset_index()
columns = "case vgprs spilled_vgprs lds_bytes waves_by_registers waves_by_lds waves"
show_table(
    pair, columns, "The same tile, without and with `waves_per_eu=4`", origin=origin
)

# %% [markdown]
# The kernel now spills, and still no additional wavefront fits. The compiler doesn't know how much LDS the launch
# requests, so its comment in the assembly promises four wavefronts. Occupancy isn't speed either. A kernel that keeps
# the matrix units busy with two wavefronts doesn't need more.
#
# ## Trap: the tile fits on my GPU
#
# This table shows the large tile on two GPUs:

# %%
wide = cases[cases.index.str.startswith("256x256x64")].reset_index()
wide["setting"] = wide["case"].str.removesuffix("_gfx950")
wide = wide.sort_values(["setting", "target"])
columns = "setting target vgprs lds_bytes spilled_vgprs waves limited_by"
show_table(wide, columns, "Tiles of 256 x 256 x 64 on MI300 and MI350", origin=origin)

# %% [markdown]
# Eight warps split the sums across twice as many lanes, which removes the spills on the MI300. On the MI350, Triton
# uses more LDS, and the tile spills with eight warps but not with four.
#
# ## Trap: the tile fit last year
#
# After an upgrade, users reported that attention kernels took [three to four times][a] as long on an MI350. [A pull
# request][b] for a fix counts the spilled registers of these kernels.
#
# [a]: https://github.com/ROCm/aiter/issues/4137
# [b]: https://github.com/triton-lang/triton/pull/11249

# %%
versions = {path.name: table_of(path) for path in sorted(shipped.iterdir())}
history = pd.concat(versions, names=["triton"]).reset_index()
history["setting"] = history["case"].str.removesuffix("_gfx950")
history = history[
    history.groupby("setting")["case"].transform("size") == 2 * len(versions)
]
wanted = history[history["setting"] == "256x256x64_8warps"]
spills = wanted.pivot(
    index="target", columns="triton", values="spilled_vgprs"
).reset_index()
title = "Spilled registers of the 256 x 256 x 64 tile with 8 warps, by Triton version"
show_table(
    spills, " ".join(spills), title, origin=f"compiled: Triton {', '.join(versions)}"
)

# %% [markdown]
# The number of spills depends on the kernel, the tile, the GPU and the Triton version, so check again after each
# change.
#
# ## Fix the spills
#
# | setting | what it changes |
# | --- | --- |
# | tile size | the number of sums, and therefore the registers and the intensity |
# | `num_warps` | the number of lanes that the sums are split across; LDS is shared by all warps in a workgroup |
# | tile depth | registers and LDS for loaded data, but not the intensity |
# | `num_stages` | the number of prefetched tiles; one stage less halves the LDS and leaves room for more waves |
# | `waves_per_eu` | the number of registers that the compiler may use |

# %%
# 3 minutes: `history` contains each setting for both GPUs and three Triton versions. Of the settings that never spill,
# which has the highest intensity? Answer with its name from the `setting` column.
q = exercise("16.3", history)
# solution
clean = history.groupby("setting")["spilled_vgprs"].sum().eq(0)
answer = max(clean[clean].index, key=lambda name: int(name.split("x")[0]))
# end solution
q.check(answer)

# %% [markdown]
# To see whether this setting is also the fastest, measure it with `triton.testing.do_bench` or as in lesson 04.
#
# ## A fused kernel
#
# `add_norm` adds and normalizes in one kernel, so it reads two numbers and writes one. Two separate kernels would also
# write the sum and read it again, so they would move five numbers.

# %%
rows = cases.loc[["add_norm", "add_norm_odd"]].reset_index()
columns = "case vgprs lds_bytes waves limited_by loads"
title = "The same kernel with a width divisible by 16 and with an odd width"
show_table(rows, columns, title, origin=origin)

# %% [markdown]
# If the width is divisible by 16, each lane loads 16 bytes at once. Otherwise, a row may start at any address, so the
# kernel loads `x` and `residual` one number (2 bytes) at a time. It also loads `weight` (4 bytes) this way, because the
# mask `column < width` depends on the width. The kernel then needs more registers, so fewer wavefronts fit. Therefore, pad
# the last dimension, and check `loads` if one shape is slower than similar shapes.
#
# ## In your tests
#
# Triton's cache, in `~/.triton/cache` or `TRITON_CACHE_DIR`, contains all kernels of a run. For the exercise, find the
# right option in `python -m tidyprof isa --help`.

# %%
# 2 minutes: write a shell command that reads the cache folder `ci/triton-cache` and fails if one of its kernels spills.
cache = "ci/triton-cache"
q = exercise("16.4", cache)
# solution
answer = f"python -m tidyprof isa {cache} --fail-on-spill"
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# | what you see | what to do next |
# | --- | --- |
# | spills | use a smaller tile or more warps, then check again |
# | 0 waves | the kernel doesn't fit, so use less LDS |
# | loads of 1 or 2 bytes | pad the width, or tell Triton which sizes are divisible by 16 |
# | none of these | measure the kernel |

# %%
proflab.reveal("16.a", int(cases.loc["128x128x64", "vgprs"]), origin)
proflab.reveal("16.b", int(cases.loc["256x256x64", "spilled_vgprs"]), origin)

# %% [markdown]
# ## Three takeaways
#
# - The assembly lists registers, spills and LDS, so you can check a kernel before it runs on any GPU.
# - The resource that runs out first limits the occupancy, so compare wave slots, registers and LDS.
# - Spills depend on the kernel, the tile, the GPU and the compiler, so add a test that fails if a kernel spills.

# %% [markdown] tags=["given"]
# ## What this view can't show
#
# - **Speed:** a kernel that spills a little before its loop may be the fastest.
# - **Execution counts:** the assembly doesn't show how often an instruction runs.
# - **Cache hits,** LDS bank conflicts, and whether the grid fills the GPU (lesson 05).
# - **Library kernels:** hipBLASLt and MIOpen contain compiled kernels. rocprofv3 shows the registers and scratch of
#   each kernel that ran (lesson 04).
#
# For spills after an upgrade, see the [known
# issues](../docs/known-issues.md#triton-kernels-spill-registers-after-an-upgrade). If a launch fails with `out of
# resource: shared memory`, the tile needs more LDS than the GPU has, so use fewer stages or less depth. If the cache
# contains no `.amdgcn`, the kernels were compiled for another GPU.

# %% [markdown]
# ## At work, without this course
#
# {snippet 16_compiler.py}
#
# Run this script on Triton's cache, or import `compile_for` to compile your own kernel.

# %% [markdown]
# Next question: yours.
