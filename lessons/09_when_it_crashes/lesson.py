# %% [markdown]
# # Which kernel killed my job?
#
# A training job on a GPU ends with `Memory access fault` and `Aborted`. Python raises no error, and the log stops at an
# unrelated line. The ROCm Debug Agent catches this moment and prints what the GPU was doing.
#
# After this lesson, you can:
#
# - tell which program prints which message, and explain why Python can't name the guilty line;
# - run one rank and one step under the Debug Agent, with the caches off;
# - find the kernel, the kind of fault and the launch in the agent's report;
# - stop wrong labels before they reach the GPU.
#
# **Before you start:** complete lessons 00, 02 and 04. You don't need to know debuggers or machine code. The commands
# apply to ROCm 6.2 to {released rocm}. The lesson causes no real fault, which would disturb others on a shared node.

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
# GPU memory consists of *pages* of a fixed size. The hardware stops a kernel that touches a missing page, or that writes
# to a read-only page. It doesn't check which tensor an address belongs to.
#
# | program | what it prints | what is missing |
# | --- | --- | --- |
# | the GPU driver | an interrupt, and a line in the kernel log | the kernel's name |
# | ROCr, the runtime | `Memory access fault by GPU node-N ... on address ... Reason: ...` | the kernel's name |
# | the shell | `Aborted (core dumped)` | everything |
# | Python | nothing, but its module `faulthandler` prints where the *host* was | the guilty line |
# | the Debug Agent | the event, the page, the kernel's name, and all stopped *waves* with their registers | the operator, the line |
#
# - A *wave* (wavefront) is a group of 64 *lanes* that run the same instructions. Each lane works on one element.
# - *Registers* hold values: a scalar register (`s0`) one per wave, and a vector register (`v0`) one per lane.
# - The *program counter*, `pc`, is the address of the next instruction.
# - `node-N` also counts CPUs, so GPU 0 isn't node 0.
#
# A common cause is an index out of range, such as the row of a table (an *embedding*) or the label of a loss.

# %% [markdown] tags=["given"]
# ## Predict
#
# The scores of a batch are 256 times 100 numbers of four bytes, one per image and class. For each image, the loss reads
# the score of its label, so a label that is too large reads behind the row. PyTorch's *cache* cuts small tensors out of
# blocks of 2 MiB. If the scores start at the beginning of a block, what is the first label of image 0 that reads outside
# the block?

# %%
# solution
label_guess = 1000
# end solution
what = "the first label of image 0 that reads outside the block"
proflab.predict("09.a", label_guess, what=what)

# %% [markdown]
# ## On the CPU
#
# Here is the bug twice on your CPU, where PyTorch checks every index:

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
# The error comes immediately and from the right line, so first run the step that crashed with `--device cpu`. If it
# succeeds there, you need the agent.
#
# ## Trap: no error proves nothing
#
# A kernel without checks computes an address and reads it. What does label 100 of image 3 read?

# %%
neighbor = scores.flatten()[3 * 100 + 100]
show_text(f"It reads {neighbor:.4f}. The score of image 4 for class 0 is {scores[4, 0]:.4f}.")
BLOCK, PAGE, FLOAT = 2 * 2**20, 4096, 4  # bytes
with_cache = BLOCK // FLOAT
without = -(-256 * 100 * FLOAT // PAGE) * PAGE // FLOAT
origin = "modeled: block sizes of PyTorch's allocator (c10, CUDACachingAllocator), pages of 4 KiB"
show_text(
    f"The first label of image 0 outside the block is {with_cache:,}. Without the cache, the first "
    f"label outside the tensor's pages is {without:,}. Origin: {origin}."
)
proflab.reveal("09.a", with_cache, origin)

# %% [markdown]
# A wrong index inside the block finds other numbers, and the job trains on them. With `PYTORCH_NO_HIP_MEMORY_CACHING=1`,
# PyTorch doesn't use its cache. The page behind the tensor may then be missing, so the fault occurs at the bug. Even so,
# a wrong index can still hit valid memory.
#
# > **Note:** PyTorch's kernels contain checks, but ROCm builds since [2.2][off] left them out. Newer builds stop the kernel
# > at a failed check without a message ([change of 2025][on]), and the agent reports an *assert trap*.
#
# [off]: https://github.com/pytorch/pytorch/pull/116207
# [on]: https://github.com/pytorch/pytorch/pull/155262
#
# ## Trap: the blamed line
#
# The host runs ahead of the GPU. Here, a thread imitates a GPU, and the second operation is wrong:

# %%
operations = {"forward": lambda: None, "loss": lambda: cross_entropy(scores, labels)}
operations |= {"backward": lambda: None, "next step": lambda: None}


with ThreadPoolExecutor(max_workers=1) as device:
    launched = {name: device.submit(work) for name, work in operations.items()}
guilty = next(name for name, job in launched.items() if job.exception())
show_text(f"The host had launched **{[*launched][-1]}** when the error of **{guilty}** arrived.")

# %% [markdown]
# Python would blame the last line. `AMD_SERIALIZE_KERNEL=3` makes the host wait at every kernel, so it stops at the guilty
# one. If the fault disappears, suspect a *race*: two kernels, or a kernel and a copy, use the same memory, and nothing
# fixes their order.
#
# ## How did the job end?
#
# The course wrote these six last lines, in the words of ROCr, PyTorch, Python and Slurm. Read "HSAIL operation" as "an
# instruction of the kernel".

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
# 4 minutes: What ended each job? Answer with a dictionary from letter to "wrong address" (in a kernel), "failed check"
# (in a kernel), "GPU memory", "host" (its memory, or a crash of a library on the CPU) or "Python" (a Python error).
q = exercise("09.1", ENDS)
# solution
answer = {"a": "wrong address", "b": "failed check", "c": "GPU memory"}
answer |= {"d": "host", "e": "host", "f": "Python"}
# end solution
q.check(answer)

# %% [markdown]
# Use the agent for the first two only. For GPU memory, see lesson 11. For the host, use `faulthandler` and Slurm's log.
#
# ## Read a report
#
# A report starts with a line for the event, and a block per wave follows. AMD published this report of a kernel that
# stopped at a trap, as at a failed check:

# %%
trap = lesson.file("published_assert.txt").read_text()
print("\n".join(line for line in trap.splitlines() if re.search("Queue|wave_|Dis|=>|53", line)))
show_text("Origin: recorded, GPU not stated.")

# %% [markdown]
# No public report in today's layout shows a complete memory fault, so the next report is **constructed**. We compiled a
# small kernel for the MI300X, `picked[image] = -logits[100 * image + label[image]]`, and computed its registers.
# (*Logits* are the scores.) It never ran.

# %%
CONSTRUCTED = "modeled: constructed by the course; machine code by LLVM 22.1 for gfx942, never run"
report = lesson.file("constructed_fault.txt").read_text()
event, first_wave = report.split("-" * 56)[:2]
lines = [line for line in first_wave.splitlines() if not re.match(r" *[vs]\d+:", line)]
print(event.strip(), *lines, sep="\n")
states = re.findall(r"^wave_(\d+): pc=(0x\w+).*reason: ([A-Z_|]+)\)$", report, re.MULTILINE)
waves = pd.DataFrame(states, columns=["wave", "pc", "reason"])
waves["kernel"] = re.findall(r"^Disassembly for function (.*):$", report, re.MULTILINE)
show_table(waves, "wave pc reason kernel", "What stopped, and why", origin=CONSTRUCTED)

# %% [markdown]
# The **reason** decides what to do next:
#
# | reason | meaning | next step |
# | --- | --- | --- |
# | `ASSERT_TRAP` | a check failed | run the step on the CPU |
# | `MEMORY_VIOLATION` | a wrong address | compare what the kernel reads with its tensors |
# | `ILLEGAL_INSTRUCTION` | wrong code for this GPU, or damaged code | find out what the code was built for |
#
# - **Kernel:** the name includes the types of the arguments.
# - **Place:** the `pc` is *behind* the guilty access. A load only requests the data, and the waves stopped at `s_waitcnt`,
#   which waits for it. If there are several values of `pc`, the most frequent one [may be innocent][place].
# - **Page:** the report names one page, but more lanes may have read wrong ones.
#
# [place]: https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py

# %%
# 4 minutes: The job calls this kernel with `tensors`, in the order of its arguments. Which tensor doesn't match what the
# kernel reads, and which type does the kernel read? Answer with a pair such as ("picked", "float32").
tensors = {"picked": torch.empty(128), "logits": torch.randn(128, 100)}
tensors["labels"] = torch.randint(100, (128,), dtype=torch.int32)
print({name: (str(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()})
q = exercise("09.2", (report, tensors))
# solution
answer = "labels", "int64"
# end solution
q.check(answer)

# %% [markdown]
# ## From the kernel to its machine code
#
# A *code object* is a piece of machine code with its kernels. The agent can save all code objects of a program. Each file
# is named after the object's URI, with `_` instead of `:/#?&=`. The report contains the URI of the faulting kernel:

# %%
(uri,) = set(re.findall(r"code object: (\S+)", report))
show_text(f"URI: `{uri}`. File: `{re.sub('[:/#?&=]', '_', uri)}`.")

# %% [markdown]
# `llvm-objdump --disassemble-all --demangle FILE` makes the file readable. Search its output for the name of the kernel,
# then for the instruction at the offset from `pc`, here `+100` bytes. URIs that start with `memory://` belong to code
# that Triton (`torch.compile`) or MIOpen generated while the program ran.
#
# ## From the kernel to the launch
#
# A trace like those in lesson 02 contains the operator that launched a kernel. Record it with a batch that does *not*
# crash. This one is modeled: the example run on an MI300X.

# %%
found = proflab.recording("modeled-resnet")
trace = tidyprof.read(found.files["torch/trace_rank0_of_1.json.gz"], origin=found.origin)
columns = {"name": str, "short_name": str, "operator": str}
kernels = trace.events[trace.events["kind"] == "kernel"].astype(columns)
softmax = kernels[kernels["name"].str.contains("softmax")]
launched = softmax.groupby(["short_name", "operator"]).size().rename("calls").reset_index()
caption = "Operators that launched softmax kernels"
show_table(launched, "short_name operator calls", caption, origin=trace.origin)

# %%
# 2 minutes: The agent reports that `nll_loss_forward_reduce_cuda_kernel_2d` stopped. Which operator launched it?
q = exercise("09.3", trace)
# solution
stopped = kernels[kernels["name"].str.contains("nll_loss_forward_reduce_cuda_kernel_2d")]
(answer,) = stopped["operator"].unique()
# end solution
q.check(answer)

# %% [markdown]
# ## Record your own report
#
# First, make the job small: one rank without a launcher, one step, no loader processes, and the model and data that
# crashed. An environment variable makes the runtime load the agent, which supports the same GPUs as its library
# [ROCdbgapi][readme]. Your own kernels show source lines if you compile them with `-ggdb -O0`.
#
# [readme]: https://github.com/ROCm/rocr_debug_agent/blob/amd-staging/README.md
#
# | setting | reason |
# | --- | --- |
# | `HSA_TOOLS_LIB` | names the agent; it can't name a second tool, so don't use a profiler as well |
# | `HSA_ENABLE_DEBUG=1` | one AMD guide and the runtime's manual list it, but the agent's README doesn't |
# | `--all` | prints all waves, not only the stopped ones |
# | `--output=` | writes the report to a file, whose folder must exist |
# | `--save-code-objects=` | saves the machine code to a folder, which must exist |
# | `PYTORCH_NO_HIP_MEMORY_CACHING=1` | gives every tensor separate memory (see the first trap) |
# | `HSA_DISABLE_FRAGMENT_ALLOCATOR=1` | stops the runtime from cutting up large pieces of memory |
# | `AMD_SERIALIZE_KERNEL=3` | waits before and after each kernel; `HIP_LAUNCH_BLOCKING=1` does much the same |
# | `ulimit -c 0` | prevents core files, which can contain a GPU's memory and fill the disk |
#
# Spaces separate the options in `ROCM_DEBUG_AGENT_OPTIONS`, so paths must not contain spaces. These settings make a
# program slow, so use them only for the search. Without a GPU, the last line doesn't run:

# %% language="bash"
# mkdir -p $FOLDER/one/objects
# export HSA_TOOLS_LIB="${ROCM_PATH:-/opt/rocm}/lib/librocm-debug-agent.so.2" HSA_ENABLE_DEBUG=1
# OPTIONS="--all --output=$FOLDER/one/agent.txt --save-code-objects=$FOLDER/one/objects"
# export ROCM_DEBUG_AGENT_OPTIONS=$OPTIONS
# export PYTORCH_NO_HIP_MEMORY_CACHING=1 HSA_DISABLE_FRAGMENT_ALLOCATOR=1 AMD_SERIALIZE_KERNEL=3
# ulimit -c 0
# test -e /dev/kfd || { echo "No AMD GPU here."; exit 0; }
# python -m cifar_train --max-steps 1 --batch-size 8 --num-workers 0 --run-dir $FOLDER/one

# %%
# 4 minutes: A colleague used the settings `theirs`. The report was lost, or it named no useful place. Correct the wrong
# values and add what is missing, so that the agent prints all waves into a file in the folder `hunt`. Don't save code
# objects.
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
# Before you use the agent, try two quicker checks. They work with any program:
#
# ```bash
# AMD_LOG_LEVEL=4 AMD_SERIALIZE_KERNEL=3 python train.py 2> hip.log   # large: one rank, one step
# tail -n 30 hip.log                                                # the last launch is the one that failed
# HIP_LAUNCH_BLOCKING=1 PYTHONFAULTHANDLER=1 python train.py        # prints the line that launched the kernel
# ```
#
# The agent has more options:
#
# | option | effect |
# | --- | --- |
# | `--precise-memory` | the `pc` is just behind the guilty instruction, if the GPU supports it; slower |
# | `--output=dbg-%p.txt` | one file per process (`%h`: the host), since ROCm 10.1 |
# | `--disable-linux-signals` | leaves SIGQUIT to another program, such as Slurm |
#
# > **Tip:** If a job *hangs*, run `kill -s SIGQUIT PID`. The agent prints all waves, and the job continues. On a cluster,
# > `scripts/slurm/debug_agent.sh` makes these settings (except the code objects), with a file per rank and `--all` for one
# > rank. Put the options that crash, and `--max-steps 1`, into `TRAIN_OPTIONS`.

# %% [markdown]
# ## A guard
#
# Check the labels on the CPU, where it is cheap. On the GPU, each check would wait for the kernels.

# %%
bad = ((labels < 0) | (labels >= 100)).nonzero().flatten().tolist()
show_text(
    f"{len(bad)} of {len(labels)} labels is outside 0 to 99: {labels[bad[0]]} at index {bad[0]}."
)

# %% [markdown]
# The check also stops `-100`, PyTorch's "no label", which your own kernel may not handle. The snippet below also rejects
# labels of 32 bits.
#
# ## Decide
#
# Report the kernel, the operator and the index to the maintainer. With all waves of a full MI300X, a report is huge ([117
# lines per wave][lines] on Frontier), so use `--all` for one rank only.
#
# [lines]: https://github.com/MFlowCode/MFC/blob/master/toolchain/mfc/gpu_diagnostics.py

# %% [markdown]
# ## What this tool can't see
#
# - **The guilty wave:** the report names one page. Waves stop a little later, and others stop with them.
# - **The Python line, the operator, the shapes:** use lesson 02 and a CPU run.
# - **Silent errors, host crashes, times and the past:** the memory may have been overwritten long before.
#
# Known issues:
#
# - A usage message at the start means an unknown option or a missing folder.
# - Since ROCm 7, the kernel's name is between `pc` and the reason, which older parsers miss.
# - If the traceback ends in a different library each time, serialize the kernels.
# - [The agent can't start next to a debugger or a GPU core
#   dump](../docs/known-issues.md#the-agent-cannot-start-beside-a-debugger-or-a-gpu-core-dump).
#
# ## Three takeaways
#
# - The last line of a log shows which program ended the job, so read it before you choose a tool.
# - Turn off the caches and wait for each kernel, otherwise a wrong index hits valid memory or the wrong line is blamed.
# - Go from the report to the kernel, from a trace to its operator, and from there to the index.

# %% [markdown]
# ## At work, without this course
#
# {snippet 09_debug_a_fault.sh}
#
# Run any program with the settings above, and with the agent if it is installed.
#
# {snippet 09_guard_labels.py}
#
# Check labels in a data loader, and the rows of embeddings.
#
# Further reading: [AMD's manual of the Debug Agent](https://rocm.docs.amd.com/projects/rocr_debug_agent/en/latest/).
#
# Next question: eager against compiled, what does it change?
