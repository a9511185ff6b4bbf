# %% [markdown]
# # Which kernel killed my job?
#
# A training job on a GPU ends with `Memory access fault` and `Aborted`. There is no Python error, and the log stops
# at a line that has nothing to do with it. The ROCm Debug Agent catches the GPU at that moment and prints what it
# was doing. You follow such a report back to the index that was wrong.
#
# After this lesson you can
#
# - say who prints which message, and why Python can't name the guilty line;
# - run one rank and one step under the Debug Agent, with the caches off;
# - go from a program counter to an instruction, an index and a PyTorch operator.
#
# You need lessons 00, 02 and 04, but no debugger and no machine code. Commands are those of ROCm
# 6.2 to 7.2. No fault is caused here, with or without a GPU: on a shared node that would disturb others.

# %%
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.asynchronous import StandInDevice
from proflab.parts.constructed_fault import ConstructedFault, listing
from proflab.parts.fault_charts import index_reach, lanes_figure, reach_figure
from proflab.parts.fault_report import around, read_listing
from proflab.parts.kernel_operators import kernel_operators
from proflab.parts.published_faults import assert_trap, lines_of_a_full_gpu, memory_fault

lesson = proflab.start("09")

# %% [markdown]
# ## The picture to keep in mind
#
# Memory is handed out in pieces of a fixed size, called *pages*. A kernel that touches a missing page, or writes to one
# that it may only read, is stopped. Of an address the hardware checks nothing else: not to which tensor it belongs.
#
# | who | what it prints | what is missing |
# | --- | --- | --- |
# | the GPU's driver | an interrupt, and a line in the kernel log | the kernel's name |
# | ROCr, the runtime | `Memory access fault by GPU node-N ... on address ... Reason: ...`, then aborts | the same |
# | the shell | `Aborted (core dumped)` | everything |
# | Python | nothing: the process is gone. Its module `faulthandler` shows where the *host* was | the guilty line |
# | the Debug Agent | event, page, every stopped *wave* with its registers, the kernel's name | the operator, the line |
#
# A *wave* is 64 lanes of a kernel that run in step; each *lane* works on one element. (Lesson 05 calls it a wavefront.)
# *Registers* hold what they work with: scalar ones (`s0`) one value for the wave, vector ones (`v0`) one for each lane.
# The *program counter*, `pc`, is the address of the next instruction. In `node-N` processors are counted too, so GPU 0
# is not node 0.
#
# A common cause is an index out of range: the row of a table (an *embedding*), or the label of a loss.
#
# ## Predict
#
# The scores of one batch are 256 times 100 numbers of four bytes, one for each image and class. The loss picks from
# each image's scores the one of its label, so a label that is too large reads behind them. PyTorch takes memory in
# blocks larger than one tensor and keeps them: this is its *cache*. Let the scores stand at the beginning of a block.

# %%
# solution
label_guess, lines_guess = 1000, 10_000
# end solution
proflab.predict("09.a", label_guess, what="the first label of image 0 that must leave PyTorch's block")
proflab.predict("09.b", lines_guess, unit="lines", what="the longest report of one MI300X, with all its waves")

# %% [markdown]
# ## Capture
#
# First make the job small: one rank without launcher, one step, no loader processes, and the model and data that
# crashed. Then load the agent. It is a library that the runtime loads at the start: an option of the environment, not
# a word before the command.
#
# | setting | why |
# | --- | --- |
# | `HSA_TOOLS_LIB` | path of the agent. Not for two tools at once: none of the profilers beside it |
# | `HSA_ENABLE_DEBUG=1` | one guide of AMD's sets it; the library's README does not mention it |
# | `--all` | all waves, not only those that stopped |
# | `--output=` | a file; otherwise the report is mixed with the log. Its folder must exist |
# | `--save-code-objects=` | keeps the machine code, to be made readable later. Its folder must exist too |
# | `PYTORCH_NO_HIP_MEMORY_CACHING=1` | every tensor gets memory of its own; the trap below shows why |
# | `HSA_DISABLE_FRAGMENT_ALLOCATOR=1` | the same, one level below: the runtime cuts large pieces as well |
# | `AMD_SERIALIZE_KERNEL=3` | wait before and after each kernel. `HIP_LAUNCH_BLOCKING=1` does much the same |
# | `ulimit -c 0` | no core file: with a GPU's memory in it, it may fill the disk |
#
# The agent's options stand in `ROCM_DEBUG_AGENT_OPTIONS`, which is cut at blanks: no blanks in paths. All of this is
# slow, and only for the hunt. Run it; nothing crashes:

# %% language="bash"
# mkdir -p runs/09/one/objects
# export HSA_TOOLS_LIB="${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2" HSA_ENABLE_DEBUG=1
# export ROCM_DEBUG_AGENT_OPTIONS="--all --output=runs/09/one/agent.txt --save-code-objects=runs/09/one/objects"
# export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# ulimit -c 0
# python -m cifar_train --max-steps 1 --batch-size 8 --num-workers 0 --run-dir runs/09/one

# %% [markdown]
# Without a GPU the runtime never starts, so nobody looks at these settings. That is why there is no stand-in here.
# A *signal*, such as SIGQUIT, is a message of the system to a process.
#
# | also | what for | since |
# | --- | --- | --- |
# | `--precise-memory` | the `pc` stands just behind the guilty instruction, if the GPU can; slower | 2024 |
# | `--output=dbg-%p.txt` | a file per process; also `%h` for the host | sources of 2026: before, the text is literal |
# | `--disable-linux-signals` | keep SIGQUIT for somebody else, such as Slurm | 2024 |
# | `kill -s SIGQUIT PID` | print all waves of a job that *hangs*; it goes on afterwards | 2024 |
#
# On a cluster `scripts/slurm/debug_agent.sh` of this course sets all of the first table but the saved code objects,
# with a file per rank, and `--all` only for one rank. Put the options that crash, and `--max-steps 1`, into
# `TRAIN_OPTIONS`.
#
# ## On the processor
#
# The same bug, twice, on this machine's processor. PyTorch checks every index there:

# %%
import torch
from torch.nn.functional import cross_entropy, embedding

scores = torch.randn(8, 100, generator=torch.Generator().manual_seed(9))
labels = torch.tensor([3, 41, 7, 100, 12, 99, 0, 58])
for what, attempt in {
    "a label": lambda: cross_entropy(scores, labels),
    "a row": lambda: embedding(labels, torch.randn(100, 16)),
}.items():
    try:
        attempt()
    except IndexError as error:
        say(f"{what} out of range: `{type(error).__name__}: {error}`, at once and on the right line.")

# %% [markdown]
# So first run one step with `--device cpu`, on the data that crashed. If the bug is an index that PyTorch checks,
# Python names the line. If nothing happens, the fault may need the GPU's own kernels, and you need the agent.
#
# ## Trap: no error is no proof
#
# A kernel that checks nothing computes an address and reads. Where does label 100 of image 3 lead?

# %%
neighbour = scores.flatten()[3 * 100 + 100]
say(f"To {neighbour:.4f}: the score of image 4 for class 0, {scores[4, 0]:.4f}. No fault, a wrong loss.")
reach = index_reach(256 * 100 * 4)
cached, plain = reach["silent_bytes"] / 2**20
show_figure(reach_figure(reach, title=f"With the cache an index can miss by {cached:.1f} MiB inside its block"))
with_cache, without = reach["first_fault"]
say(
    f"If the scores begin their block, the first label of image 0 that must leave it is {with_cache:,}; without the "
    f"cache {without:,}. If they end their block, a fault is possible with the cache too, from {256 * 100:,} on."
)

# %% [markdown]
# PyTorch cuts tensors out of its blocks. A wrong index that stays inside the block finds other numbers there, and the
# job trains on them. The repair is what you set above: without the cache the page behind the tensor may
# be missing, and the fault comes where the bug is. Even then an index may hit something that exists.
#
# PyTorch's own kernels have checks, but not always: builds for ROCm from [2.2][off] left them out. Newer ones
# stop the kernel where a check fails, without a text: see this [change of 2025][on]. The agent then reports an
# *assert trap*.
#
# [off]: https://github.com/pytorch/pytorch/pull/116207
# [on]: https://github.com/pytorch/pytorch/pull/155262
#
# ## Second trap: the blamed line
#
# The host runs ahead. Here the thread of lesson 00 stands in for a GPU, and the second operation is wrong:

# %%
operations = {"forward": lambda: None, "loss": lambda: cross_entropy(scores, labels), "backward": lambda: None}


def blamed(wait):
    device = StandInDevice()
    for reached, work in {**operations, "next step": lambda: None}.items():
        device.launch(work)
        try:
            device.synchronize() if wait or reached == "next step" else None
        except IndexError:
            return reached


say(f"Blamed: **{blamed(wait=False)}**. With a wait after every launch: **{blamed(wait=True)}**.")

# %% [markdown]
# The wait is what `AMD_SERIALIZE_KERNEL=3` adds. If the fault then disappears, suspect a *race*: a kernel and another
# kernel or a copy touch the same memory, and nobody fixed their order.
#
# ## A recorded fault
#
# AMD published this one with its first Debug Agent. The layout has changed since, what to read has not: the page,
# the `pc`, the instruction there, and the registers that it names.
#
# An instruction names what it does, then the register for the result, then its inputs. `v_mov_b32_e32 v2, v1` copies v1
# into v2. `v_add_i32_e32 v1, vcc, s10, v1` puts s10 + v1 into v1, and the carry into vcc. A store is the exception:
# its address comes first. v[2:3] is a pair: v2 is the lower half of the address, v3 the upper one. Numbers are
# hexadecimal.

# %%
old = memory_fault()
print(old.text)
say(f"Origin: {old.origin}, NCSA licence; shortened. The `pc` is at 1310: a store of v0, to the address in v[2:3].")

# %%
# 5 minutes: which element (its index) of an array did this kernel write? An element has 4 bytes. Find what was added to
# the array's start. `old.scalars` has the scalar registers as numbers, `old.lane_0` the vector registers of lane 0.
q = exercise("09.1", old)
# solution
answer = old.scalars["s10"] / 4
# end solution
q.check(answer)

# %%
trap = assert_trap()
say("Today's layout has one block per wave. Also by AMD: a kernel that ran into a trap, as a failed check does.")
show_table(trap.table(), "wave reason pc kernel active_lanes", trap.event)
wave = trap.waves[0]
print(around(wave.code.instructions, wave.pc))
say(
    f"`exec` has a bit for each lane that is switched on. Here it is {wave.scalars['exec']:#x}: of 64 lanes only lane "
    f"{wave.active_lanes()[0]} ran into the trap."
)

# %% [markdown]
# ## From the kernel to the operator
#
# The agent names kernels in full, as lessons 02 and 04 saw them. The table of lesson 04 tells how often one runs; a
# trace of lesson 02 also knows who launched it. Record it with a batch that does *not* crash. The trace below is
# modelled: this training on an MI300X. Some kernels around the loss:

# %%
found = proflab.try_recording("modelled-resnet")
trace = tidyprof.read(found.files["torch/trace_rank0_of_1.json.gz"], origin=found.origin) if found else None
if found:
    near_loss = kernel_operators(trace, "loss", "softmax")
    show_table(near_loss, "short_name operator calls", "Kernels and the operators that launched them")

# %%
# 3 minutes: the agent says that `nll_loss_forward_reduce_cuda_kernel_2d` stopped. Which operator launched it?
q = exercise("09.2", trace)
# solution
answer = kernel_operators(trace, "nll_loss_forward")["operator"].iloc[0]
# end solution
q.check(answer)

# %% [markdown]
# A *code object* is a piece of machine code with its kernels. Those of Triton (`torch.compile`) or MIOpen are made
# while the program runs, and are called `memory://...`. Their operator is the compiled block or the convolution around
# them.
#
# ## A report to work through
#
# No public report of today's layout has all registers of a memory fault. So this one is **constructed**: a small kernel
# of the course, `picked[image] = -logits[100 * image + label[image]]`, compiled for the MI300X, and registers
# computed from what it would have done. (*Logits* are the scores.) It never ran. The cause is known, but not to you.

# %%
fault = ConstructedFault()
report, code = fault.report(), read_listing(listing())
show_table(report.table(), "wave reason pc kernel active_lanes", report.event)
say(f"Faulting page: {report.faulting_page:#x}")
stopped = report.waves[0]
print(around(stopped.code.instructions, stopped.pc, after=3))

# %% [markdown]
# Without debug information, which names source lines, the agent prints only what comes from the `pc` on. What came
# before is in the saved code object. Its addresses count from its own start, so subtract the first address that the
# report gives behind `loaded at`. This command makes the code readable:
#
# `llvm-objdump --disassemble-all runs/09/one/objects/memory___...`

# %%
print(around(code, stopped.listing_pc, before=12))
say(f"{stopped.pc:#x} - {stopped.code.loaded_from:#x} = {stopped.listing_pc:#x}, the place of the arrow.")

# %% [markdown]
# How to read it: `global_load_dword v2, v[2:3], off` fetches 4 bytes for each lane, from the address in the registers
# v2 (low half) and v3, into v2. A load only asks. `s_waitcnt` waits for the answer, and there the waves were when the
# fault came: the `pc` stands behind the load that is to blame. The load overwrites v2, half of its own address. In this
# report no lane's answer had come back, so v[2:3] still holds the addresses.

# %%
# 4 minutes: at which address of the listing, such as 0x1918, is the instruction that looked at the faulting page?
q = exercise("09.3", (report, code))
# solution
loads = [address for address, text in code.items() if text.startswith("global_load")]
answer = max(address for address in loads if address < stopped.listing_pc)
# end solution
q.check(answer)

# %% [markdown]
# Now the lanes. For each `wave` of `report.waves`, `wave.vector_pair(2)` gives the addresses in v[2:3], lane by lane.
# s[2:3] holds the address where `logits` starts. Waves belong to *workgroups*, here one wave and 64 images in each;
# `wave.scalars["s8"]` is the workgroup's number, from 0.

# %%
# 7 minutes: which image of the batch (from 0) does the lane on the faulting page work on? A page has 4096 bytes, and
# `report.faulting_page` is the address of its first one.
q = exercise("09.4", report)
# solution
groups = {wave.scalars["s8"]: [address // 4096 * 4096 for address in wave.vector_pair(2)] for wave in report.waves}
answer = next(
    64 * s8 + pages.index(report.faulting_page) for s8, pages in groups.items() if report.faulting_page in pages
)
# end solution
q.check(answer)

# %%
base = stopped.scalar_pair(2)
show_figure(lanes_figure(report, base, 2, title="Nearly every lane looked farther away than the GPU has memory"))
offsets = [(address - base) // 4 for address in stopped.vector_pair(2)]
used = [offset - 100 * image for image, offset in enumerate(offsets)]
labels_seen = ", ".join(f"`{label:#018x}`" for label in used[:6])
say(f"The labels that the first wave used, image by image, as 64-bit numbers: {labels_seen}")

# %%
# 4 minutes: what is wrong with these labels? "one label is too large", "labels are negative",
# "32-bit labels read as 64-bit" or "labels were never filled in"?
q = exercise("09.5", report)
# solution
answer = "32-bit labels read as 64-bit"
# end solution
q.check(answer)

# %% [markdown]
# The last exercise is open: a guard that would have said so in words. Labels come as any sequence of whole numbers.

# %%
# 6 minutes, open: `guard(labels, classes)` raises ValueError. Its text has the first bad label and its position, from
# 0. If all labels are in range, it does nothing.
q = exercise("09.6")


# solution
def guard(labels, classes):
    for position, label in enumerate(labels):
        if not 0 <= label < classes:
            raise ValueError(f"label {label} at position {position} is not in 0 to {classes - 1}")


answer = guard
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# The stop reason chooses the next step. For a report of your own, begin with
# `proflab.parts.fault_report.read_fault_report("agent.txt")`.

# %%
NEXT = {
    "ASSERT_TRAP": "an index check failed: run the step on the processor, which names the line",
    "MEMORY_VIOLATION": "find the access before the pc, its address registers, and the index in them",
    "ILLEGAL_INSTRUCTION": "wrong code for this GPU, or damaged code: check what it was built for",
}
for name, seen in {"AMD's assert trap": trap, "The constructed report": report}.items():
    reason = seen.waves[0].reasons[0]
    say(f"{name}: {reason}. Next: {NEXT[reason]}.")
proflab.reveal("09.a", int(with_cache), reach)
proflab.reveal("09.b", lines_of_a_full_gpu(), "computed: lines per wave of a published report, waves of an MI300X")

# %% [markdown] tags=["given"]
# ## What this tool cannot see
#
# - Which wave was guilty: one page is reported, waves stop a little later, and others stop with them.
# - The Python line, the operator, the shapes: those come from lesson 02 and from a run on the processor.
# - Silent errors: an index that lands in other memory of the process causes no fault.
# - Crashes of the host, such as a segmentation fault or too little memory: `faulthandler`, or the scheduler's log.
# - The past: memory may have been overwritten long before. And no times: it is no profiler.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | the program ends at once with a usage text | an option is unknown to this version, or a folder is missing |
# | `Failed to enable debug interface` | [a debugger or a GPU core dump has the place already][place] |
# | a parser finds no wave since ROCm 7 | [the kernel's name now stands between `pc` and the reason][place] |
# | the waves show several values of `pc` | count them; the most frequent one [may be innocent][place] |
# | huge files | leave `--all` out, one rank only |
# | the disk fills up with core files | `ulimit -c 0` |
# | PyTorch's traceback ends in another library each time | serialise the kernels, and repeat |
#
# More about profilers is in the [list of known issues](../docs/known-issues.md).
#
# [place]: https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py

# %% [markdown]
# ## Key points
#
# - Make it small first: one rank, one step, and once on the processor.
# - No fault is no proof. Switch the caches off, then look again.
# - The `pc` is where waves stopped. The access before it, its registers and the page are the evidence.
# - Report the kernel, the operator and the index: that is what a maintainer can work with.
#
# Next question: can you find out what is wrong with a run that does not crash? (lesson 08)
