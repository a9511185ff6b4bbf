"""Stop a wrong label or index before it reaches the GPU, with a message instead of a memory fault.

In a training script (this file beside it as guard_labels.py):

    from guard_labels import guarded, guard_embeddings
    for images, labels in guarded(loader, classes=100): ...  # cheap: labels are not on the GPU yet
    guard_embeddings(model)     # for the hunt only: a GPU is waited for each time

On labels or token numbers that were saved with torch.save:

    python 09_guard_labels.py labels.pt 100
"""

import sys

import torch


def guard(indices, count, name="label", ignored=None):
    """Raise ValueError unless all `indices` are whole numbers of 64 bits from 0 to count - 1.

    ignored -- a number that stands for "no label", such as -100 for cross_entropy.
    """
    if indices.dtype != torch.int64:
        raise ValueError(
            f"{name}s are {indices.dtype}: a kernel that reads 64 bits would take two of 32 for one"
        )
    bad = (indices < 0) | (indices >= count)
    if ignored is not None:
        bad &= indices != ignored
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"{int(bad.sum())} of {indices.numel()} {name}s are not in 0 to {count - 1}; the first"
            f" is {int(indices[place])} at {place[0] if len(place) == 1 else place}"
        )


def guarded(loader, classes, ignored=None):
    """The batches (inputs, labels) of a loader, each with its labels looked at."""
    for step, (inputs, labels) in enumerate(loader):
        guard(labels, classes, f"batch {step}: label", ignored)
        yield inputs, labels


def guard_embeddings(model):
    """Look at what every embedding of a model is asked for; returns a function that takes the
    guards off again.
    """
    taken = [
        layer.register_forward_pre_hook(
            lambda layer, inputs, name=name: guard(
                inputs[0].long(), layer.num_embeddings, f"{name}: row"
            )
        )
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Embedding)
    ]
    return lambda: [hook.remove() for hook in taken]


if __name__ == "__main__":
    values = torch.load(sys.argv[1], map_location="cpu")
    try:
        guard(values, int(sys.argv[2]))
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    print(f"{sys.argv[1]}: all {values.numel()} are in range")
