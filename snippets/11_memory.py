"""Calculate the memory that training a model needs.

    python 11_memory.py

On a GPU, the script also prints the allocator's statistics and writes a memory snapshot
of a few steps to snapshot.pickle. To view the snapshot in your browser, open
https://pytorch.org/memory_viz.
"""

import pickle

import torch

# Also True for an AMD GPU
has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"

# Your model, optimizer and batch:
# ------------------------------------------------------------------------------
model = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 100)
).to(device)
optimizer = torch.optim.Adam(model.parameters())
batch = torch.randn(256, 512, device=device), torch.randint(100, (256,), device=device)


def loss_of(images, labels):
    """Return the loss of one batch, computed as in your training loop."""
    return torch.nn.functional.cross_entropy(model(images), labels)


# ------------------------------------------------------------------------------


def size_of(tensors):
    """Return the total size of the tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def step():
    """Run one training step."""
    loss_of(*batch).backward()
    optimizer.step()
    optimizer.zero_grad()


def saved_for_backward():
    """Return the size in bytes of the tensors that `forward` saves for `backward`,
    without parameters.

    Each storage counts only once.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved = {}

    def pack(tensor):
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            saved[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        # Keep the loss, so that its memory isn't reused
        loss = loss_of(*batch)
    del loss
    return sum(saved.values())


def results_of_the_update():
    """Return the size in bytes of temporary results in Adam and AdamW
    (torch/optim/adam.py).

    Return 0 for other optimizers, although they may also need temporary results.
    """
    options = optimizer.defaults
    if "betas" not in options or options.get("fused"):
        return 0
    sizes = [
        size_of([parameter])
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    all_at_once = has_gpu if options.get("foreach") is None else options["foreach"]
    return sum(sizes) if all_at_once else 2 * max(sizes)


def ask_the_allocator():
    """Print the allocator's statistics, and write a memory snapshot of three steps."""
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        for _ in range(3):
            step()
    # Write the snapshot even if memory runs out
    finally:
        with open("snapshot.pickle", "wb") as file:
            # The viewer may not support protocol 5.
            pickle.dump(torch.cuda.memory._snapshot(), file, protocol=4)
        torch.cuda.memory._record_memory_history(enabled=None)
    free, total = torch.cuda.mem_get_info()
    numbers = {
        "allocated": torch.cuda.memory_allocated(),
        "peak allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "used on the device": total - free,
        "of": total,
    }
    for name, value in numbers.items():
        print(f"{name:24} {value:>15,} bytes")
    print("retried allocations:", torch.cuda.memory_stats()["num_alloc_retries"])


# Creates Adam's states
step()
of_parameters = [state.values() for state in optimizer.state.values()]
states = [state for own in of_parameters for state in own if torch.is_tensor(state)]
counted = {
    "parameters": size_of(model.parameters()),
    "gradients": size_of(
        parameter for parameter in model.parameters() if parameter.requires_grad
    ),
    "optimizer states": size_of(states),
    "saved for backward": saved_for_backward(),
}
# The backward pass frees saved tensors while it creates gradients.
stages = {
    "when forward ends": sum(counted.values()) - counted["gradients"],
    "in the update": (
        sum(counted.values()) - counted["saved for backward"] + results_of_the_update()
    ),
}
for name, value in (counted | stages).items():
    print(f"{name:24} {value:>15,} bytes")
print(
    f"{'the larger':24} {max(stages.values()):>15,} bytes; temporary results increase "
    "the peak"
)
if has_gpu:
    ask_the_allocator()
else:
    print("This machine has no GPU, so the allocator doesn't report statistics.")
