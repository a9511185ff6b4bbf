# %% [markdown]
# # Which kernel killed my job?
#
# A training job on a GPU ends with `Memory access fault` and `Aborted`. There is no Python error, and the log stops at
# a line that has nothing to do with it. The ROCm Debug Agent catches the GPU at that moment and prints what it was
# doing. You read such a report.
#
# After this lesson you can
#
# - say who prints which message, and why Python can't name the guilty line;
# - run one rank and one step under the Debug Agent, with the caches off;
# - name the kernel, the kind of fault and the launch from what it prints;
# - stop wrong labels before they reach the GPU.
#
# You need lessons 00, 02 and 04, but no debugger and no machine code. Commands are those of ROCm 6.2 to {released
# rocm}. No fault is caused here, with or without a GPU: on a shared node that would disturb others.

# %%
import re
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, show_table, show_text
from torch.nn.functional import cross_entropy, embedding

lesson = proflab.start("09")

# %%
lesson.recall()

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
# *Registers* hold what they work with: a scalar register (`s0`) one value for the wave, a vector register (`v0`) one
# for each lane. The *program counter*, `pc`, is the address of the next instruction. In `node-N` processors are counted
# too, so GPU 0 is not node 0.
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
label_guess = 1000
# end solution
what = "the first label of image 0 that must leave PyTorch's block"
proflab.predict("09.a", label_guess, what=what)

# %% [markdown]
# ## On the processor
#
# The same bug, twice, on this machine's processor. PyTorch checks every index there:

# %%
scores = torch.randn(8, 100, generator=torch.Generator().manual_seed(9))
labels = torch.tensor([3, 41, 7, 100, 12, 99, 0, 58])
for what, attempt in {
    "a label": lambda: cross_entropy(scores, labels),
    "a row": lambda: embedding(labels, torch.randn(100, 16)),
}.items():
    try:
        attempt()
    except IndexError as error:
        show_text(f"{what} out of range: `IndexError: {error}`, at once and on the right line.")

# %% [markdown]
# So first run one step with `--device cpu`, on the data that crashed. If nothing happens, the fault may need the GPU's
# own kernels, and you need the agent.
#
# ## Trap: no error is no proof
#
# A kernel that checks nothing computes an address and reads. Where does label 100 of image 3 lead? And how far may an
# index of the large batch miss before it must leave PyTorch's block? Small tensors are cut out of blocks of one size.

# %%
neighbor = scores.flatten()[3 * 100 + 100]
show_text(
    f"To {neighbor:.4f}: the score of image 4 for class 0, {scores[4, 0]:.4f}. No fault, a wrong "
    "loss."
)
BLOCK, PAGE, FLOAT = 2 * 2**20, 4096, 4  # bytes; PyTorch's block for tensors of at most 1 MiB
size = 256 * 100 * FLOAT
with_cache, without = BLOCK // FLOAT, -(-size // PAGE) * PAGE // FLOAT
origin = "modeled: block sizes of PyTorch's allocator (c10, CUDACachingAllocator), pages of 4 KiB"
show_text(
    f"The first label of image 0 that must leave the block is {with_cache:,}; without the cache, "
    f"with whole pages alone, {without:,}. Origin: {origin}."
)

# %% [markdown]
# A wrong index that stays inside the block finds other numbers there, and the job trains on them. The repair is
# `PYTORCH_NO_HIP_MEMORY_CACHING=1`: without the cache the page behind the tensor may be missing, and the fault comes
# where the bug is. Even then an index may hit something that exists.
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
# The host runs ahead. Here a thread stands in for a GPU: it does what it is handed, in order. The second operation is
# wrong:

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


show_text(f"Blamed: **{blamed(wait=False)}**. Waiting after every launch: **{blamed(wait=True)}**.")

# %% [markdown]
# The wait is what `AMD_SERIALIZE_KERNEL=3` adds. If the fault then disappears, suspect a *race*: a kernel and another
# kernel or a copy touch the same memory, and nobody fixed their order.
#
# ## Which kind of end?
#
# Six last lines, made up by the course in the words of ROCr, PyTorch, Python and Slurm. For *HSAIL*, HSA's old
# intermediate language, read "an instruction of the kernel".

# %%
ENDS = {
    "a": "Memory access fault by GPU node-4 on address 0x7f2e4c000000. Reason: Page not present.",
    "b": "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.",
    "c": "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
    "d": "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.",
    "e": "Fatal Python error: Segmentation fault. Current thread: in __getitem__",
    "f": "IndexError: Target 100 is out of bounds.",
}
for name, text in ENDS.items():
    print(f"{name}  {text}")

# %%
# 4 minutes: who ended each job? Give a dictionary from letter to "wrong address" (a kernel's), "failed check" (in a
# kernel), "GPU memory", "host" (its memory, or a crash of a library there) or "Python" (an error that it names).
q = exercise("09.1", ENDS)
# solution
answer = {"a": "wrong address", "b": "failed check", "c": "GPU memory"}
answer |= {"d": "host", "e": "host", "f": "Python"}
# end solution
q.check(answer)

# %% [markdown]
# Only the first two are for the agent. For *GPU memory* see lesson 11, for the host `faulthandler` and the scheduler.
#
# ## Read a report
#
# A report has a line for the event, then a block for each wave below a line of dashes. First one that AMD published,
# of a kernel that ran into a trap, as a failed check does:

# %%
trap = lesson.file("published_assert.txt").read_text()
print("\n".join(line for line in trap.splitlines() if re.search("Queue|wave_|Dis|=>|53", line)))
show_text("Origin: recorded, GPU not stated.")

# %% [markdown]
# No public report of today's layout has all of a memory fault. So the next one is **constructed**: a small kernel of
# the course, `picked[image] = -logits[100 * image + label[image]]`, compiled for the MI300X, and registers computed
# from what it would have done. (*Logits* are the scores.) It never ran. Its first wave without the registers' values,
# and what you need of the report in one table:

# %%
CONSTRUCTED = "modeled: constructed by the course; machine code by LLVM 22.1 for gfx942, never run"
report = lesson.file("constructed_fault.txt").read_text()
event, first_wave = report.split("-" * 56)[:2]
lines = [line for line in first_wave.splitlines() if not re.match(r" *[vs]\d+:", line)]
print(event.strip(), *lines, sep="\n")


def waves_of(text):
    states = re.findall(r"^wave_(\d+): pc=(0x\w+).*reason: ([A-Z_|]+)\)$", text, re.MULTILINE)
    kernels = re.findall(r"^Disassembly for function (.*):$", text, re.MULTILINE)
    rows = [(*state, kernel) for state, kernel in zip(states, kernels, strict=True)]
    return pd.DataFrame(rows, columns=["wave", "pc", "reason", "kernel"])


show_table(waves_of(report), "wave pc reason kernel", "What stopped, and why", origin=CONSTRUCTED)

# %% [markdown]
# - **Kind:** it chooses the next step. `ASSERT_TRAP` is a failed check: run the step on the processor.
#   `MEMORY_VIOLATION` is a wrong address: compare what the kernel reads with the tensors that it got.
#   `ILLEGAL_INSTRUCTION` is wrong code for this GPU, or damaged code: look what it was built for.
# - **Kernel:** its name, with the types of its arguments.
# - **Place:** the `pc` stands *behind* the access that is to blame. A load only asks, `s_waitcnt` waits for the answer,
#   and there the waves were when the fault came. With several values of `pc` the most frequent one
#   [may be innocent][place].
# - **Page:** one is named, though more lanes may have looked at wrong places: the first one noticed.
#
# The registers hold the addresses, and `llvm-objdump --disassemble-all` makes the saved machine code readable, for who
# maintains the kernel.
#
# [place]: https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py

# %%
# 4 minutes: the job calls this kernel with `tensors`, in the order of its arguments. Which one does not fit what the
# kernel reads, and which type does it read? Answer with a pair such as ("picked", "float32").
tensors = {"picked": torch.empty(128), "logits": torch.randn(128, 100)}
tensors["labels"] = torch.randint(100, (128,), dtype=torch.int32)
print({name: (str(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()})
q = exercise("09.2", (report, tensors))
# solution
answer = "labels", "int64"
# end solution
q.check(answer)

# %% [markdown]
# ## From the kernel to the launch
#
# A trace of lesson 02 knows which operator launched the kernel. Record it with a batch that does *not* crash. This one
# is modeled: this training on an MI300X.

# %%
found = proflab.recording("modeled-resnet")
trace = tidyprof.read(found.files["torch/trace_rank0_of_1.json.gz"], origin=found.origin)
columns = {"name": str, "short_name": str, "operator": str}
kernels = trace.events[trace.events["kind"] == "kernel"].astype(columns)
softmax = kernels[kernels["name"].str.contains("softmax")]
launched = softmax.groupby(["short_name", "operator"]).size().rename("calls").reset_index()
caption = "Who launched the softmax kernels"
show_table(launched, "short_name operator calls", caption, origin=trace.origin)

# %%
# 3 minutes: the agent says that `nll_loss_forward_reduce_cuda_kernel_2d` stopped. Which operator launched it?
q = exercise("09.3", trace)
# solution
stopped = kernels[kernels["name"].str.contains("nll_loss_forward_reduce_cuda_kernel_2d")]
(answer,) = stopped["operator"].unique()
# end solution
q.check(answer)

# %% [markdown]
# A *code object* is a piece of machine code with its kernels. Those of Triton (`torch.compile`) or MIOpen are made
# while the program runs, and are called `memory://...`. Their operator is the compiled block or the convolution around
# them.

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
# slow, and only for the hunt. Run it; nothing crashes, and without a GPU nobody looks at these settings:

# %% language="bash"
# mkdir -p $FOLDER/one/objects
# export HSA_TOOLS_LIB="${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2" HSA_ENABLE_DEBUG=1
# OPTIONS="--all --output=$FOLDER/one/agent.txt --save-code-objects=$FOLDER/one/objects"
# export ROCM_DEBUG_AGENT_OPTIONS=$OPTIONS
# export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# ulimit -c 0
# python -m cifar_train --max-steps 1 --batch-size 8 --num-workers 0 --run-dir $FOLDER/one

# %%
# 5 minutes: a colleague set `theirs`, and the report was lost or named no place. Mend what is wrong or missing, for a
# hunt with all waves and a report in the folder `hunt`. Change the values that have to change; no code objects.
theirs = {
    "HSA_TOOLS_LIB": "librocm-debug-agent.so.2 librocprofiler64.so",
    "ROCM_DEBUG_AGENT_OPTIONS": "--all --output=hunt/first try/agent.txt",
    "HSA_DISABLE_FRAGMENT_ALLOCATOR": "1",
}
q = exercise("09.4", theirs)
# solution
answer = theirs | {"PYTORCH_NO_HIP_MEMORY_CACHING": "1", "AMD_SERIALIZE_KERNEL": "3"}
answer["HSA_TOOLS_LIB"] = "librocm-debug-agent.so.2"
answer["ROCM_DEBUG_AGENT_OPTIONS"] = "--all --output=hunt/first_try/agent.txt"
# end solution
q.check(answer)

# %% [markdown]
# Two quicker looks come before the agent, and go with any program. With `AMD_LOG_LEVEL=4` the HIP runtime writes what
# it is asked for; when each kernel is waited for, the last launch in that log is the one that failed. With
# `HIP_LAUNCH_BLOCKING=1` the host waits for each kernel, so that `faulthandler` shows the line that launched it:
#
# ```bash
# AMD_LOG_LEVEL=4 AMD_SERIALIZE_KERNEL=3 python train.py 2> hip.log   # large: one rank, one step
# tail -n 30 hip.log
# HIP_LAUNCH_BLOCKING=1 PYTHONFAULTHANDLER=1 python train.py        # at the abort: where the host was
# ```
#
# More of the agent's options: `--precise-memory` (the `pc` stands just behind the guilty instruction, if the GPU can;
# slower), `--output=dbg-%p.txt` (a file per process, `%h` for the host; ROCm 10.1, before that the text is literal) and
# `--disable-linux-signals`, which keeps SIGQUIT for somebody else, such as Slurm. A *signal* is a message of the system
# to a process: with `kill -s SIGQUIT PID` a job that *hangs* prints all its waves, and goes on. On a cluster
# `scripts/slurm/debug_agent.sh` of this course sets the table but the saved code objects, with a file per rank and
# `--all` for one rank only. Put the options that crash, and `--max-steps 1`, into `TRAIN_OPTIONS`.
#
# ## A guard
#
# A look at labels is cheap on the processor; on the GPU it would wait at every step:

# %%
bad = ((labels < 0) | (labels >= 100)).nonzero().flatten().tolist()
show_text(f"{len(bad)} of {len(labels)} labels: {labels[bad[0]]} at index {bad[0]}, not 0 to 99.")

# %% [markdown]
# Two more causes that it stops: `-100`, which stands for "no label" in PyTorch and which a kernel of your own may not
# know, and labels of 32 bits for a kernel that reads 64.
#
# ## Decide
#
# Report the kernel, the operator and the index: that is what a maintainer can work with. With all waves of a full
# MI300X a report is huge ([117 lines a wave][lines] on Frontier), so `--all` is for one rank.
#
# [lines]: https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py

# %%
proflab.reveal("09.a", with_cache, origin)

# %% [markdown]
# ## What this tool cannot see
#
# - Which wave was guilty: one page is reported, waves stop a little later, and others stop with them.
# - The Python line, the operator, the shapes: those come from lesson 02 and from a run on the processor.
# - Silent errors, crashes of the host, and the past: memory may have been overwritten long before. And no times.
#
# **Known issues.** A usage text at the start means an unknown option or a missing folder; since ROCm 7 the kernel's
# name stands between `pc` and the reason, which older parsers miss; a traceback that ends in another library each time
# asks for serialized kernels. And [the agent cannot start beside a debugger or a GPU core
# dump](../docs/known-issues.md#the-agent-cannot-start-beside-a-debugger-or-a-gpu-core-dump).

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
#
# Next question: eager against compiled, what does it change?
