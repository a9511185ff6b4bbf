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
# - read such a report with a few lines of Python, from the program counter to the index that was wrong;
# - stop wrong labels before they reach the GPU.
#
# You need lessons 00, 02 and 04, but no debugger and no machine code. Commands are those of ROCm
# 6.2 to {released rocm}. No fault is caused here, with or without a GPU: on a shared node that would disturb others.

# %%
import re
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.fault_charts import lanes_figure

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
proflab.predict(
    "09.a", label_guess, what="the first label of image 0 that must leave PyTorch's block"
)
proflab.predict(
    "09.b", lines_guess, unit="lines", what="the longest report of one MI300X, with all its waves"
)

# %% [markdown]
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
        say(
            f"{what} out of range: `{type(error).__name__}: {error}`, at once and on the right "
            "line."
        )

# %% [markdown] tags=["given"]
# So first run one step with `--device cpu`, on the data that crashed. If the bug is an index that PyTorch checks,
# Python names the line. If nothing happens, the fault may need the GPU's own kernels, and you need the agent.
#
# ## Trap: no error is no proof
#
# A kernel that checks nothing computes an address and reads. Where does label 100 of image 3 lead? And how far may an
# index of the large batch miss before it must leave PyTorch's block? The allocator cuts tensors of at most 1 MiB out of
# blocks of 2 MiB, those below 10 MiB out of blocks of 20 MiB, and rounds larger ones up to multiples of 2 MiB.

# %%
neighbour = scores.flatten()[3 * 100 + 100]
say(
    f"To {neighbour:.4f}: the score of image 4 for class 0, {scores[4, 0]:.4f}. No fault, a wrong "
    "loss."
)
MIB, PAGE = 2**20, 4096


def rounded_up(size, unit):
    return -(-size // unit) * unit


def block(size):
    return 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else rounded_up(size, 2 * MIB)


# %%
size = 256 * 100 * 4
reach = pd.DataFrame(
    {"memory": ["with the cache", "without"], "mapped_bytes": [block(size), rounded_up(size, PAGE)]}
)
reach["silent_bytes"], reach["first_fault"] = (
    reach["mapped_bytes"] - size,
    reach["mapped_bytes"] // 4,
)
origin = "modelled: block sizes of PyTorch's allocator (c10, CUDACachingAllocator), pages of 4 KiB"
show_table(
    reach,
    "memory mapped_bytes silent_bytes first_fault",
    "How far an index may miss",
    origin=origin,
)
with_cache, without = reach["first_fault"]
say(
    "If the scores begin their block, the first label of image 0 that must leave it is "
    f"{with_cache:,}; without the cache {without:,}. If they end their block, a fault is possible "
    f"with the cache too, from {256 * 100:,} on."
)

# %% [markdown]
# PyTorch cuts tensors out of its blocks. A wrong index that stays inside the block finds other numbers there, and the
# job trains on them. The repair is `PYTORCH_NO_HIP_MEMORY_CACHING=1`: without the cache the page behind the tensor
# may be missing, and the fault comes where the bug is. Even then an index may hit something that exists.
#
# PyTorch's own kernels have checks, but not always: builds for ROCm from [2.2][off] left them out. Newer ones
# stop the kernel where a check fails, without a text: see this [change of 2025][on]. The agent then reports an
# *assert trap*.
#
# [off]: https://github.com/pytorch/pytorch/pull/116207
# [on]: https://github.com/pytorch/pytorch/pull/155262
#
# ## Trap: the blamed line
#
# The host runs ahead. Here a thread stands in for a GPU: it does what it is handed, in order, while the program goes
# on. The second operation is wrong:

# %%
operations = {"forward": lambda: None, "loss": lambda: cross_entropy(scores, labels)}
operations |= {"backward": lambda: None, "next step": lambda: None}


def blamed(wait):
    launched = []
    with ThreadPoolExecutor(max_workers=1) as device:
        for reached, work in operations.items():
            launched.append(device.submit(work))
            try:
                if wait or reached == "next step":
                    [one.result() for one in launched]
            except IndexError:
                return reached


say(f"Blamed: **{blamed(wait=False)}**. With a wait after every launch: **{blamed(wait=True)}**.")

# %% [markdown]
# The wait is what `AMD_SERIALIZE_KERNEL=3` adds. If the fault then disappears, suspect a *race*: a kernel and another
# kernel or a copy touch the same memory, and nobody fixed their order.
#
# ## Read today's layout
#
# Today there is one block per wave, below a line of dashes. A few regular expressions take it apart: the line of the
# wave, scalar registers (`s0: f520c000`), and vector registers with a value for each lane (`v0: [0] 00000000 [1] ...`).
# `exec` has a bit for each lane: 1 means that the lane takes part. Numbers are hexadecimal.
# A name of a kernel may stand between `pc` and the reason, full of brackets: `.*` jumps over it.

# %%
WAVE = re.compile(
    r"^wave_(\d+): pc=(0x[0-9a-f]+).*\((running|stopped, reason: [A-Z0-9_|]+)\)$", re.MULTILINE
)


def waves_of(text):
    waves = []
    for block in re.split(r"^-{20,}\n", text, flags=re.MULTILINE)[1:]:
        number, pc, state = WAVE.search(block).groups()
        wave = {
            "wave": int(number),
            "pc": int(pc, 16),
            "reason": state.removeprefix("stopped, reason: "),
        }
        for name, value in re.findall(r"\b([a-z]\w*): ([0-9a-f]{8,16})\b", block):
            wave[name] = int(value, 16)
        for name, lanes in re.findall(r"^ *(v\d+): (\[0\].*)$", block, flags=re.MULTILINE):
            wave[name] = [int(value, 16) for value in re.findall(r"\] ([0-9a-f]{8})", lanes)]
        waves.append(wave)
    return waves


# %% [markdown]
# Also by AMD: a kernel that ran into a trap, as a failed check does. *HSAIL* in its first line was the intermediate
# language of HSA's first years; the message has kept the name. Read "an instruction of the kernel".

# %%
trap = lesson.file("published_assert.txt").read_text()
(wave,) = waves_of(trap)
print("\n".join(line for line in trap.splitlines() if re.search("Queue error|wave_|exec|=>", line)))
lanes = [lane for lane in range(64) if wave["exec"] >> lane & 1]
say(
    f"{wave['reason']} at {wave['pc']:#x}. `exec` is {wave['exec']:#x}: of 64 lanes only lane "
    f"{lanes[0]} took part."
)
say("Origin: recorded, GPU not stated.")

# %% [markdown]
# ## From the kernel to the operator
#
# The agent names kernels in full, as lessons 02 and 04 saw them. The table of lesson 04 tells how often one runs; a
# trace of lesson 02 also knows who launched it. Record it with a batch that does *not* crash. The trace below is
# modelled: this training on an MI300X. The kernels of the softmax before the loss:

# %%
found = proflab.try_recording("modelled-resnet")
trace = (
    tidyprof.read(found.files["torch/trace_rank0_of_1.json.gz"], origin=found.origin)
    if found
    else None
)
if found:
    kernels = trace.events[trace.events["kind"] == "kernel"].astype(
        {"name": str, "short_name": str, "operator": str}
    )
    softmax = kernels[kernels["name"].str.contains("softmax")]
    launched = softmax.groupby(["short_name", "operator"]).size().rename("calls").reset_index()
    show_table(
        launched,
        "short_name operator calls",
        "Who launched the softmax kernels",
        origin=trace.origin,
    )

# %%
# 3 minutes: the agent says that `nll_loss_forward_reduce_cuda_kernel_2d` stopped. Which operator launched it?
q = exercise("09.1", trace)
# solution
stopped = kernels[kernels["name"].str.contains("nll_loss_forward_reduce_cuda_kernel_2d")]
(answer,) = stopped["operator"].unique()
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
CONSTRUCTED = "modelled: constructed by the course; machine code by LLVM 22.1 for gfx942, never run"
report = lesson.file("constructed_fault.txt").read_text()
waves = waves_of(report)
page = int(re.search(r"^Faulting page: (0x[0-9a-f]+)", report, re.MULTILINE)[1], 16)
say("The report, without the lines of scalar and vector registers:")
print("\n".join(line for line in report.splitlines() if not re.match(r" *[vs]\d+:", line)))
show_table(pd.DataFrame(waves), "wave reason s8", "The waves", origin=CONSTRUCTED)

# %% [markdown]
# Without debug information, which names source lines, the agent prints only what comes from the `pc` on. What came
# before is in the saved code object. Its addresses count from its own start, so subtract the first address that the
# report gives behind `loaded at`. `llvm-objdump --disassemble-all` makes the code readable. From the first load of the
# kernel to where the waves stopped:

# %%
listing = lesson.file("constructed_listing.txt").read_text()
code = {
    int(at, 16): text.strip()
    for text, at in re.findall(r"^\t(.*)// ([0-9A-F]+):", listing, re.MULTILINE)
}
loaded = int(re.search(r"loaded at: \[(0x[0-9a-f]+)", report)[1], 16)
arrow = waves[0]["pc"] - loaded
begin = min(at for at, text in code.items() if text.startswith("global_load"))
shown = {at: text for at, text in code.items() if begin <= at <= arrow}
print("\n".join(f"{'=>' if at == arrow else '  '} {at:#x}  {text}" for at, text in shown.items()))
say(f"{waves[0]['pc']:#x} - {loaded:#x} = {arrow:#x}, the place of the arrow.")

# %% [markdown]
# How to read it: `global_load_dword v2, v[2:3], off` fetches 4 bytes for each lane, from the address in the registers
# v2 (low half) and v3, into v2. A load only asks. `s_waitcnt` waits for the answer, and there the waves were when the
# fault came: the `pc` stands behind the load that is to blame. The load overwrites v2, half of its own address. In this
# report no lane's answer had come back, so v[2:3] still holds the addresses.

# %%
# 3 minutes: at which address of the listing, such as "0x1918", is the instruction that looked at the faulting page?
q = exercise("09.2", (report, listing))
# solution
loads = [address for address, text in code.items() if text.startswith("global_load")]
answer = max(address for address in loads if address < arrow)
# end solution
q.check(answer)

# %% [markdown]
# Now the lanes. A pair of registers is one number of 64 bits: the upper half, moved up by 32 bits, or the lower half.
# s[2:3] holds the address where `logits` starts. Waves belong to *workgroups*, here one wave and 64 images in each;
# s8 is the workgroup's number, from 0.


# %%
def looked_at(wave):
    return [high << 32 | low for low, high in zip(wave["v2"], wave["v3"], strict=True)]


# %%
# 7 minutes: which image of the batch (from 0) does the lane on the faulting page work on? A page has 4096 bytes, and
# `page` is the address of its first one.
q = exercise("09.3", report)
# solution
for wave in waves:
    for lane, address in enumerate(looked_at(wave)):
        if address // 4096 * 4096 == page:
            answer = 64 * wave["s8"] + lane
# end solution
q.check(answer)

# %%
base = waves[0]["s3"] << 32 | waves[0]["s2"]
everywhere = [address for wave in waves for address in looked_at(wave)]
title = "Nearly every lane looked farther away than the GPU has memory"
show_figure(lanes_figure(everywhere, base, page, CONSTRUCTED, title=title))
used = [(address - base) // 4 - 100 * image for image, address in enumerate(everywhere)]
labels_seen = ", ".join(f"`{label:#018x}`" for label in used[:6])
say(f"The labels that the first images got, as 64-bit numbers: {labels_seen}")

# %%
# 6 minutes: what is wrong with these labels, and which one does image 7 really have? Answer with a pair. The first is
# "one label is too large", "labels are negative", "32-bit labels read as 64-bit" or "labels were never filled in".
q = exercise("09.4", report)
# solution
halves = [half for label in used for half in (label & 0xFFFFFFFF, label >> 32)]
answer = "32-bit labels read as 64-bit", halves[7]
# end solution
q.check(answer)

# %% [markdown]
# ## Another job
#
# The next morning the same kernel fails in another job: `constructed_fault_2.txt`. The agent names one page, and one
# lane looked at it. Was only that label wrong?

# %%
# 7 minutes: how many of the labels in this report are out of range (0 to 99)? Begin with `waves_of(second)`.
second = lesson.file("constructed_fault_2.txt").read_text()
q = exercise("09.5", second)
# solution
others = waves_of(second)
base = others[0]["s3"] << 32 | others[0]["s2"]
offsets = [(address - base) // 4 for wave in others for address in looked_at(wave)]
wrong = [
    offset - 100 * image
    for image, offset in enumerate(offsets)
    if not 0 <= offset - 100 * image < 100
]
answer = len(wrong)
# end solution
q.check(answer)

# %% [markdown]
# ## Record a report of your own
#
# First make the job small: one rank without launcher, one step, no loader processes, and the model and data that
# crashed. Then load the agent. It is a library that the runtime loads at the start: an option of the environment, not
# a word before the command. Kernels of your own name their source lines where they were compiled with `-ggdb -O0`; a
# PyTorch wheel's don't. It supports the GPUs that its library [ROCdbgapi][readme] supports.
#
# [readme]: https://github.com/ROCm/rocr_debug_agent/blob/amd-staging/README.md
#
# | setting | why |
# | --- | --- |
# | `HSA_TOOLS_LIB` | path of the agent. Not for two tools at once: none of the profilers beside it |
# | `HSA_ENABLE_DEBUG=1` | one guide of AMD's sets it, and the runtime's manual lists it; the agent's README does not |
# | `--all` | all waves, not only those that stopped |
# | `--output=` | a file; otherwise the report is mixed with the log. Its folder must exist |
# | `--save-code-objects=` | keeps the machine code, to be made readable later. Its folder must exist too |
# | `PYTORCH_NO_HIP_MEMORY_CACHING=1` | every tensor gets memory of its own; the first trap showed why |
# | `HSA_DISABLE_FRAGMENT_ALLOCATOR=1` | the same, one level below: the runtime cuts large pieces as well |
# | `AMD_SERIALIZE_KERNEL=3` | wait before and after each kernel. `HIP_LAUNCH_BLOCKING=1` does much the same |
# | `ulimit -c 0` | no core file: with a GPU's memory in it, it may fill the disk |
#
# The agent's options stand in `ROCM_DEBUG_AGENT_OPTIONS`, which is cut at blanks: no blanks in paths. All of this is
# slow, and only for the hunt. Run it; nothing crashes:

# %% language="bash"
# mkdir -p $FOLDER/one/objects
# export HSA_TOOLS_LIB="${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2" HSA_ENABLE_DEBUG=1
# OPTIONS="--all --output=$FOLDER/one/agent.txt --save-code-objects=$FOLDER/one/objects"
# export ROCM_DEBUG_AGENT_OPTIONS=$OPTIONS
# export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# ulimit -c 0
# python -m cifar_train --max-steps 1 --batch-size 8 --num-workers 0 --run-dir $FOLDER/one

# %% [markdown]
# Two quicker looks come before the agent, and go with any program. With `AMD_LOG_LEVEL=4` the HIP runtime writes what
# it is asked for; when each kernel is waited for, the last launch in that log is the one that failed.
# With `HIP_LAUNCH_BLOCKING=1` the host waits for each kernel, so that `faulthandler` shows the line that launched it:
#
# ```bash
# AMD_LOG_LEVEL=4 AMD_SERIALIZE_KERNEL=3 python train.py 2> hip.log   # large: one rank, one step
# tail -n 30 hip.log
# HIP_LAUNCH_BLOCKING=1 PYTHONFAULTHANDLER=1 python train.py        # at the abort: where the host was
# ```

# %% [markdown]
# Without a GPU the runtime never starts, so nobody looks at these settings. That is why there is no stand-in here.
# A *signal*, such as SIGQUIT, is a message of the system to a process.
#
# | also | what for | since |
# | --- | --- | --- |
# | `--precise-memory` | the `pc` stands just behind the guilty instruction, if the GPU can; slower | 2024 |
# | `--output=dbg-%p.txt` | a file per process; also `%h` for the host | ROCm 10.1; before, the text is literal |
# | `--disable-linux-signals` | keep SIGQUIT for somebody else, such as Slurm | 2024 |
# | `kill -s SIGQUIT PID` | print all waves of a job that *hangs*; it goes on afterwards | 2024 |
#
# On a cluster `scripts/slurm/debug_agent.sh` of this course sets all of the first table but the saved code objects,
# with a file per rank, and `--all` only for one rank. Put the options that crash, and `--max-steps 1`, into
# `TRAIN_OPTIONS`.

# %% [markdown]
# ## A guard
#
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
# The stop reason chooses the next step.

# %%
NEXT = {
    "ASSERT_TRAP": "an index check failed: run the step on the processor, which names the line",
    "MEMORY_VIOLATION": "find the access before the pc, its address registers, its index",
    "ILLEGAL_INSTRUCTION": "wrong code for this GPU, or damaged code: check what it was built for",
}
for name, text in {"AMD's assert trap": trap, "The constructed report": report}.items():
    reason = waves_of(text)[0]["reason"]
    say(f"{name}: {reason}. Next: {NEXT[reason]}.")
# Lines of a report on 125 waves of Frontier's GPUs (MFC, toolchain/mfc/gpu_diagnostics.py),
# for 32 waves on each of the 304 compute units of an MI300X
full = 14_635 / 125 * 32 * 304
proflab.reveal("09.a", int(with_cache), origin)
proflab.reveal("09.b", full, "computed: lines per wave of a published report, waves of an MI300X")

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
# {issue the-agent-cannot-start-beside-a-debugger-or-a-gpu-core-dump}
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
# ## At work, without this course
#
# Around any program, with the agent where it is installed:
#
# {snippet 09_debug_a_fault.sh}
#
# And the guard, for the loader and for embeddings:
#
# {snippet 09_guard_labels.py}
#
# Read on: [AMD's manual of the Debug Agent](https://rocm.docs.amd.com/projects/rocr_debug_agent/en/latest/).

# %% [markdown]
# ## Key points
#
# - Make it small first: one rank, one step, and once on the processor.
# - No fault is no proof. Switch the caches off, then look again.
# - The `pc` is where waves stopped. The access before it, its registers and the page are the evidence.
# - Report the kernel, the operator and the index: that is what a maintainer can work with.
#
# Next question: eager against compiled, what does it change?
