# %% [markdown]
# # Which kernel killed my job?
#
# A training job on a GPU ends with `Memory access fault` and `Aborted`. Python raises no error, and the log stops at an
# unrelated line. The ROCm Debug Agent catches the fault and prints what the GPU was doing.
#
# After this lesson, you can:
#
# - tell which program prints which message, and explain why Python can't name the faulty line;
# - run a single rank for one step under the Debug Agent, with the caches off;
# - find the kernel, the kind of fault and the launch in the agent's report;
# - catch wrong labels before they reach the GPU.
#
# **Before you start:** complete lessons 00, 02 and 04. You don't need experience with debuggers or machine code. The
# commands work with ROCm 6.4 to {newest rocm}. The lesson causes no real fault, because a fault would disturb others
# on a shared node.

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
# GPU memory consists of *pages* of a fixed size. The hardware stops a kernel that accesses a missing page or writes to
# a read-only page. It doesn't check which tensor an address belongs to.
#
# | program | what it prints | what its output lacks |
# | --- | --- | --- |
# | the GPU driver | an interrupt, and a line in the kernel log | the kernel's name |
# | ROCr, the runtime | `Memory access fault by GPU node-N ... on address ... Reason: ...` | the kernel's name |
# | the shell | `Aborted (core dumped)` | everything |
# | Python | nothing, but its `faulthandler` module prints where the *host* was | the faulty line |
# | the Debug Agent | the event, the page, the kernel's name, and all stopped *waves* with their registers | the operator, the line |
#
# - A *wave* (wavefront) is a group of 64 *lanes* that execute the same instructions. Each lane works on one element.
# - *Registers* hold values: a scalar register (`s0`) holds one per wave, and a vector register (`v0`) one per lane.
# - The *program counter*, `pc`, is the address of the next instruction.
# - `node-N` also counts CPUs, so GPU 0 isn't node 0.
#
# A common cause of faults is an out-of-range index, such as a row of a table (an *embedding*) or a label for a loss.

# %% [markdown] tags=["given"]
# ## Predict
#
# The scores of a batch are 256 times 100 numbers of four bytes each: one per image and class. For each image, the loss
# reads the score for its label, so too large a label makes the loss read beyond the image's row. PyTorch's *cache*
# allocates small tensors from blocks of 2 MiB. If the scores start at the beginning of a block, what is the first label
# of image 0 for which the loss reads outside the block?

# %%
# solution
label_guess = 1000
# end solution
proflab.predict(
    "09.a", label_guess, what="the first label of image 0 outside the block"
)

# %% [markdown]
# ## On the CPU
#
# The next cell uses an invalid index twice on your CPU, where PyTorch checks every index:

# %%
scores = torch.randn(8, 100, generator=torch.Generator().manual_seed(9))
labels = torch.tensor([3, 41, 7, 100, 12, 99, 0, 58])
for what, attempt in {
    "label": lambda: cross_entropy(scores, labels),
    "row": lambda: embedding(labels, torch.randn(100, 16)),
}.items():
    try:
        attempt()
    except IndexError as error:
        show_text(f"Wrong {what}: `IndexError: {error}`")

# %% [markdown]
# The error appears immediately and names the right line, so first run the failing step with `--device cpu`. If the step
# succeeds there, you need the agent.
#
# ## Trap: no error proves nothing
#
# A kernel without checks computes an address and reads from it. What does label 100 of image 3 read?

# %%
neighbor = scores.flatten()[3 * 100 + 100]
show_text(f"Label 100 reads {neighbor:.4f}. Image 4, class 0: {scores[4, 0]:.4f}.")
# Bytes
BLOCK, PAGE, FLOAT = 2 * 2**20, 4096, 4
with_cache = BLOCK // FLOAT
without = -(-256 * 100 * FLOAT // PAGE) * PAGE // FLOAT
origin = "modeled: block sizes of PyTorch's CUDACachingAllocator, pages of 4 KiB"
show_text(
    f"The first label of image 0 outside the block is {with_cache:,}. Without the "
    f"cache, the first label outside the tensor's pages is {without:,}. Origin: "
    f"{origin}."
)
proflab.reveal("09.a", with_cache, origin)

# %% [markdown]
# A wrong index inside the block reads other numbers, so the job trains on those. With
# `PYTORCH_NO_HIP_MEMORY_CACHING=1`, PyTorch doesn't use its cache. The page after the tensor may then be missing, so
# the bug causes a fault immediately. Even then, a wrong index can hit valid memory.
#
# > **Note:** PyTorch's kernels contain checks, but ROCm builds of PyTorch have omitted them since [version 2.2][off].
# > Newer builds stop the kernel at a failed check without a message ([change of 2025][on]), and the agent reports an
# > *assert trap*.
#
# [off]: https://github.com/pytorch/pytorch/pull/116207
# [on]: https://github.com/pytorch/pytorch/pull/155262
#
# ## Trap: the blamed line
#
# The host runs ahead of the GPU. In this cell, a thread simulates a GPU, and the second operation fails:

# %%
operations = {"forward": lambda: None, "loss": lambda: cross_entropy(scores, labels)}
operations |= {"backward": lambda: None, "next step": lambda: None}


with ThreadPoolExecutor(max_workers=1) as device:
    launched = {name: device.submit(work) for name, work in operations.items()}
guilty = next(name for name, job in launched.items() if job.exception())
show_text(
    f"The host had launched **{[*launched][-1]}** when the error of **{guilty}** "
    "arrived."
)

# %% [markdown]
# Python would blame the last line. With `AMD_SERIALIZE_KERNEL=3`, the host waits at every kernel, so the program stops
# at the kernel that failed. If the fault then disappears, suspect a *race*: two kernels, or a kernel and a copy, use
# the same memory, and nothing enforces their order.
#
# ## How did the job end?
#
# The course wrote these six last lines of logs, in the style of ROCr, PyTorch, Python and Slurm. In line b, "HSAIL
# operation" means "an instruction of the kernel".

# %%
ENDS = {
    "a": "Memory access fault by GPU node-4 on address 0x7f2e4c000000. Reason: Page "
    "not present.",
    "b": "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware "
    "exception.",
    "c": "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
    "d": "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.",
    "e": "Fatal Python error: Segmentation fault. Current thread: in __getitem__",
    "f": "IndexError: Target 100 is out of bounds.",
}
for name, text in ENDS.items():
    print(f"{name}  {text}")

# %%
# 4 minutes: What ended each job? Answer with a dictionary that maps each letter to "wrong address" (in a kernel),
# "failed check" (in a kernel), "GPU memory", "host" (its memory ran out, or a library crashed on the CPU) or "Python"
# (a Python error).
q = exercise("09.1", ENDS)
# solution
answer = {"a": "wrong address", "b": "failed check", "c": "GPU memory"}
answer |= {"d": "host", "e": "host", "f": "Python"}
# end solution
q.check(answer)

# %% [markdown]
# Use the agent only for the first two kinds. For GPU memory, see lesson 11. For the host, use `faulthandler` and the
# Slurm log.
#
# ## Read a report
#
# A report starts with a line about the event, followed by one block per wave. AMD published this report about a kernel
# that stopped at a trap, as at a failed check:

# %%
trap = lesson.file("published_assert.txt").read_text()
print(
    "\n".join(
        line for line in trap.splitlines() if re.search("Queue|wave_|Dis|=>|53", line)
    )
)
show_text("Source: recorded by AMD; the GPU isn't stated.")

# %% [markdown]
# No public report in the current format shows a complete memory fault, so we **constructed** the next report. We
# compiled a small kernel for the MI300X, `picked[image] = -logits[100 * image + label[image]]`, and computed its
# registers. (*Logits* are the scores.) The kernel never ran.

# %%
CONSTRUCTED = "modeled: by the course; machine code by LLVM 22.1 for gfx942, never run"
report = lesson.file("constructed_fault.txt").read_text()
event, first_wave = report.split("-" * 56)[:2]
lines = [line for line in first_wave.splitlines() if not re.match(r" *[vs]\d+:", line)]
print(event.strip(), *lines, sep="\n")
states = re.findall(
    r"^wave_(\d+): pc=(0x\w+).*reason: ([A-Z_|]+)\)$", report, re.MULTILINE
)
waves = pd.DataFrame(states, columns=["wave", "pc", "reason"])
waves["kernel"] = re.findall(r"^Disassembly for function (.*):$", report, re.MULTILINE)
show_table(waves, "wave pc reason kernel", "Why each wave stopped", origin=CONSTRUCTED)

# %% [markdown]
# The **reason** determines what to do next:
#
# | reason | meaning | next step |
# | --- | --- | --- |
# | `ASSERT_TRAP` | a check failed | run the failing step on the CPU |
# | `MEMORY_VIOLATION` | a wrong address | compare what the kernel reads with its tensors |
# | `ILLEGAL_INSTRUCTION` | the code is for another GPU, or is damaged | find out which GPU the code was built for |
#
# - **Kernel:** the name includes the argument types.
# - **Place:** the `pc` is *after* the access that failed. A load only requests the data, and the waves stopped at
#   `s_waitcnt`, which waits for the data. If the `pc` has several values, the most frequent one [may be
#   innocent][place].
# - **Page:** the report names one page, but other lanes may have read other wrong pages.
#
# [place]: https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py

# %%
# 4 minutes: The job passes `tensors` to this kernel, in the order of its arguments. Which tensor doesn't match what the
# kernel reads, and which type does the kernel read? Answer with a pair such as ("picked", "float32").
tensors = {"picked": torch.empty(128), "logits": torch.randn(128, 100)}
tensors["labels"] = torch.randint(100, (128,), dtype=torch.int32)
print(
    {name: (str(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()}
)
q = exercise("09.2", (report, tensors))
# solution
answer = "labels", "int64"
# end solution
q.check(answer)

# %% [markdown]
# ## From the kernel to its machine code
#
# A *code object* contains the machine code of one or more kernels. The agent can save all code objects of a program.
# The name of each file is the object's URI, with `_` instead of `:/#?&=`. The report contains the URI for the faulting
# kernel:

# %%
(uri,) = set(re.findall(r"code object: (\S+)", report))
show_text(f"URI: `{uri}`. File: `{re.sub('[:/#?&=]', '_', uri)}`.")

# %% [markdown]
# `llvm-objdump --disassemble-all --demangle FILE` makes the file readable. In its output, search for the kernel's name,
# then for the instruction at the offset of the `pc` (`+100` bytes in this report). URIs that start with `memory://`
# belong to code that Triton (`torch.compile`) or MIOpen generated at run time.
#
# ## From the kernel to the launch
#
# A trace like those in lesson 02 shows which operator launched a kernel. Record the trace with a batch that does *not*
# crash. This trace of the example run on an MI300X is modeled.

# %%
found = proflab.recording("modeled-resnet")
trace = tidyprof.read(
    found.files["torch/trace_rank0_of_1.json.gz"], origin=found.origin
)
columns = {"name": str, "short_name": str, "operator": str}
kernels = trace.events[trace.events["kind"] == "kernel"].astype(columns)
softmax = kernels[kernels["name"].str.contains("softmax")]
launched = (
    softmax.groupby(["short_name", "operator"]).size().rename("calls").reset_index()
)
show_table(
    launched, "short_name operator calls", "Softmax kernels", origin=trace.origin
)

# %%
# 2 minutes: The agent reports that the kernel `nll_loss_forward_reduce_cuda_kernel_2d` stopped. Which operator launched
# this kernel?
q = exercise("09.3", trace)
# solution
stopped = kernels[
    kernels["name"].str.contains("nll_loss_forward_reduce_cuda_kernel_2d")
]
(answer,) = stopped["operator"].unique()
# end solution
q.check(answer)

# %% [markdown]
# ## Record your own report
#
# First, make the job small: use one rank without a launcher, one step, no loader processes, and the network and data
# that crashed. An environment variable makes the runtime load the agent, which supports the same GPUs as its
# [ROCdbgapi][readme] library. If you compile your own kernels with `-ggdb -O0`, the report shows their source lines.
#
# [readme]: https://github.com/ROCm/rocr_debug_agent/blob/amd-staging/README.md
#
# | setting | reason |
# | --- | --- |
# | `HSA_TOOLS_LIB` | names the agent; a second tool, such as a profiler, isn't possible |
# | `HSA_ENABLE_DEBUG=1` | listed in one AMD guide and the runtime's manual, but not in the agent's README |
# | `--all` | prints all waves, not only the stopped ones |
# | `--output=` | writes the report to a file in an existing folder |
# | `--save-code-objects=` | saves the machine code to an existing folder |
# | `PYTORCH_NO_HIP_MEMORY_CACHING=1` | gives every tensor separate memory (see the first trap) |
# | `HSA_DISABLE_FRAGMENT_ALLOCATOR=1` | prevents the runtime from splitting large pieces of memory |
# | `AMD_SERIALIZE_KERNEL=3` | waits before and after each kernel; `HIP_LAUNCH_BLOCKING=1` has nearly the same effect |
# | `ulimit -c 0` | prevents core files, which can contain a GPU's memory and fill up the disk |
#
# Spaces separate the options in `ROCM_DEBUG_AGENT_OPTIONS`, so paths must not contain spaces. The settings slow a
# program down, so use them only to find a fault. Without a GPU, the last line doesn't run:

# %% language="bash"
# mkdir -p $FOLDER/one/objects
# export HSA_TOOLS_LIB="${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2"
# export HSA_ENABLE_DEBUG=1
# OPTIONS="--all --output=$FOLDER/one/agent.txt --save-code-objects=$FOLDER/one/objects"
# export ROCM_DEBUG_AGENT_OPTIONS=$OPTIONS
# export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1
# export AMD_SERIALIZE_KERNEL=3
# ulimit -c 0
# test -e /dev/kfd || { echo "No AMD GPU here."; exit 0; }
# python -m cifar_train --max-steps 1 --batch-size 8 --num-workers 0 --run-dir $FOLDER/one

# %%
# 4 minutes: A colleague used the settings `theirs`, and the report was either lost or didn't name a useful place.
# Correct the wrong values and add the missing settings, so that the agent prints all waves to a file in the `hunt`
# folder. Don't save code objects.
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
# Before you use the agent, try two quicker checks, which work with any program:
#
# ```bash
# # Use one rank and one step, because the log is large
# AMD_LOG_LEVEL=4 AMD_SERIALIZE_KERNEL=3 python train.py 2> hip.log
# # The last launch is the one that failed
# tail -n 30 hip.log
# # Prints the line that launched the kernel
# HIP_LAUNCH_BLOCKING=1 PYTHONFAULTHANDLER=1 python train.py
# ```
#
# The agent has more options:
#
# | option | effect |
# | --- | --- |
# | `--precise-memory` | the `pc` is just after the instruction that failed, if the GPU supports it; slower |
# | `--output=dbg-%p.txt` | one file per process (`%h` inserts the host name), since ROCm 10.1 |
# | `--disable-linux-signals` | leaves SIGQUIT to another program, such as Slurm |
#
# > **Tip:** If a job *hangs*, run `kill -s SIGQUIT PID`. The agent prints all waves, and the job continues. On a
# > cluster, `scripts/slurm/debug_agent.sh` makes these settings (without code objects), with one file per rank and
# > `--all` for one rank. Add `--max-steps 1` and the options of the failing run to `TRAIN_OPTIONS`.

# %% [markdown]
# ## A guard
#
# Check the labels on the CPU, because each check on the GPU would wait for the kernels.

# %%
bad = ((labels < 0) | (labels >= 100)).nonzero().flatten().tolist()
show_text(
    f"Labels outside 0 to 99: {len(bad)} of {len(labels)} ({labels[bad[0]]} at index "
    f"{bad[0]})."
)

# %% [markdown]
# The check also rejects `-100`, PyTorch's "no label" value, which your own kernel may not handle. The snippet below
# also rejects 32-bit labels.
#
# ## Decide
#
# Report the kernel, the operator and the index to the maintainer. With all waves of a full MI300X, a report is huge (on
# Frontier, [117 lines per wave][lines]), so use `--all` for one rank only.
#
# [lines]: https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py

# %% [markdown]
# ## What this tool can't see
#
# - **The wave that caused the fault:** waves stop a little later, and other waves stop with them.
# - **The Python line, the operator and the shapes:** use lesson 02 and a CPU run.
# - **Silent errors, host crashes, durations and earlier events:** memory may have been overwritten long before the
#   fault.
#
# Known issues:
#
# - A usage message at startup means that an option is unknown or a folder is missing.
# - Since ROCm 7, the kernel's name appears between `pc` and the reason, where older parsers don't find it.
# - If the traceback ends in a different library each time, serialize the kernels.
# - [The agent can't start next to a debugger or a GPU core
#   dump](../docs/known-issues.md#the-debug-agent-cant-start-with-a-debugger-or-gpu-core-dumps).
#
# ## Three takeaways
#
# - The last line of a log shows which program ended the job, so read it before you choose a tool.
# - Turn off the caches and wait for each kernel; otherwise, a wrong index can hit valid memory or Python can blame the
#   wrong line.
# - Find the kernel in the report, its operator in a trace, and the index that the operator uses.

# %% [markdown]
# ## At work, without this course
#
# {snippet 09_debug_a_fault.sh}
#
# This script runs any program with the settings above, and with the agent if it is installed.
#
# {snippet 09_guard_labels.py}
#
# This code checks the labels in a data loader and the row indices of embeddings.
#
# Further reading: [AMD's Debug Agent manual](https://rocm.docs.amd.com/projects/rocr_debug_agent/en/latest/).
#
# Next question: eager against compiled, what does it change?
