"""Detect wrong labels or indices before they reach the GPU and cause a memory fault.

Copy this file next to your training script as guard_labels.py, then add these lines to
the script:

    from guard_labels import guarded, guard_embeddings

    # cheap while labels are on the CPU
    for images, labels in guarded(loader, classes=100): ...
    guard_embeddings(model)     # only during the search: each check waits for the GPU

To check labels or token IDs that you saved with torch.save, run:

    python 09_guard_labels.py labels.pt 100
"""

import sys

import torch


def guard(indices, count, name="label", ignored=None):
    """Raise ValueError unless all `indices` are 64-bit integers from 0 to count - 1.

    - ignored: a number that means "no label", such as -100 for cross_entropy
    """
    if indices.dtype != torch.int64:
        raise ValueError(
            f"{name}s are {indices.dtype}. A kernel reads 64 bits and would merge two "
            "values."
        )
    bad = (indices < 0) | (indices >= count)
    if ignored is not None:
        bad &= indices != ignored
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"{int(bad.sum())} of {indices.numel()} {name}s are outside 0 to "
            f"{count - 1}. The first is {int(indices[place])} at "
            f"{place[0] if len(place) == 1 else place}."
        )


def guarded(loader, classes, ignored=None):
    """Yield a loader's batches (inputs, labels) and check their labels."""
    for step, (inputs, labels) in enumerate(loader):
        guard(labels, classes, f"batch {step}: label", ignored)
        yield inputs, labels


def guard_embeddings(model):
    """Check the row indices of all embeddings in a model. Return a function that
    removes the checks.
    """
    hooks = [
        layer.register_forward_pre_hook(
            lambda layer, inputs, name=name: guard(
                inputs[0].long(), layer.num_embeddings, f"{name}: row"
            )
        )
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Embedding)
    ]
    return lambda: [hook.remove() for hook in hooks]


if __name__ == "__main__":
    values = torch.load(sys.argv[1], map_location="cpu")
    try:
        guard(values, int(sys.argv[2]))
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    print(f"{sys.argv[1]}: all {values.numel()} are in range")
