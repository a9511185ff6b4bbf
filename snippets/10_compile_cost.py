"""Print the compile time, the speedup and the graph breaks of torch.compile.

    python 10_compile_cost.py

Put your own model and batches between the dashed lines. The script needs torch 2.6 or
newer. On a CPU, the script also needs a C++ compiler. On a GPU, it also needs Triton.
The script times the forward pass without gradients. To time a training step, call
answer(x).sum().backward() in milliseconds() instead.

To see the reasons for graph breaks and recompilations, run:

    TORCH_LOGS=graph_breaks,recompiles python 10_compile_cost.py
"""

import os
import statistics
import tempfile
import time

# With an empty cache, the cost is the same as on a new machine.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())

import torch

has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")


# Your model and batches:
# ------------------------------------------------------------------------------
class Model(torch.nn.Module):
    """Two layers with an activation between them."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x):
        """Return the model's output for a batch."""
        return x + self.down(torch.nn.functional.gelu(self.up(x)).square())


model = Model().to(device)
batches = [
    torch.randn(size, 256, device=device)
    for size in (64, 64, 48)
    # All batch sizes that occur
]
# ------------------------------------------------------------------------------


def milliseconds(answer, x):
    if has_gpu:
        torch.accelerator.synchronize()
    begin = time.perf_counter()
    with torch.no_grad():
        answer(x)
    if has_gpu:
        torch.accelerator.synchronize()
    return 1e3 * (time.perf_counter() - begin)


graphs = []


def counting(graph, inputs):
    graphs.append(graph)
    return graph.forward


explained = torch._dynamo.explain(model)(batches[0])
print(
    f"graphs for one call: {explained.graph_count}, graph breaks: "
    f"{explained.graph_break_count}"
)
for reason in explained.break_reasons:
    print("  ", str(reason.reason).splitlines()[0], *reason.user_stack[-1:])

torch._dynamo.reset()
counted = torch.compile(model, backend=counting)
for batch in batches:
    before = len(graphs)
    with torch.no_grad():
        counted(batch)
    print(f"{tuple(batch.shape)}: {len(graphs) - before} graphs compiled")

torch._dynamo.reset()
compiled = torch.compile(model)
first = milliseconds(compiled, batches[0])
times = {"eager": [], "compiled": []}
# Alternate, so that noise affects both versions
for _ in range(30):
    times["eager"].append(milliseconds(model, batches[0]))
    times["compiled"].append(milliseconds(compiled, batches[0]))
quarters = {how: statistics.quantiles(own[3:], n=4) for how, own in times.items()}
for how, (low, middle, high) in quarters.items():
    print(f"{how:9} median {middle:.3f} ms, quartiles {low:.3f} to {high:.3f}")
print(f"first compiled call {first / 1e3:.1f} s")
gain = quarters["eager"][1] - quarters["compiled"][1]
if quarters["compiled"][2] < quarters["eager"][0]:
    print(
        "compiling pays for itself after "
        f"{(first - quarters['compiled'][1]) / gain:,.0f} calls"
    )
else:
    print("inconclusive: the gain is within the noise")
