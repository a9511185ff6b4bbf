"""A short training run in float64 for the correctness gate: the trainer's network learns one small
batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proflab.correctness_gate import Trial

if TYPE_CHECKING:
    from torch import Tensor

IMAGES, STEPS, SEED = 8, 2, 55

RATE = 1e-4
"""A tenth of the trainer's learning rate. At the full rate, the loss of the first steps rises."""


def trial(images: Tensor, labels: Tensor, fused: bool = False, fault: str | None = None) -> Trial:
    """Train the trainer's ResNet-50 for STEPS steps from equal weights.

    images, labels -- a batch; the images are float64.
    fused          -- use Adam as one kernel for all weights.
    fault          -- fault of the trainer to inject into the model.
    """
    import torch
    from torch.nn.functional import cross_entropy

    from cifar_train.models import build_model
    from cifar_train.injected_faults import apply_to_model

    torch.manual_seed(SEED)
    model = apply_to_model(fault, build_model("resnet").double())
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=fused)
    losses, gradients = [], None
    for _ in range(STEPS):
        loss = cross_entropy(model(images).logits, labels)
        loss.backward()
        # zero_grad detaches the tensors from the parameters, so these keep the first step's values.
        gradients = gradients or [weights.grad for weights in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return Trial(losses, gradients, STEPS * len(images))


def small_batch(one_by_one: bool = False) -> tuple[Tensor, Tensor]:
    """Return IMAGES images in float64 and their labels, transformed by the trainer with the same
    random draws each time, as a whole batch or one image at a time.
    """
    import torch

    from cifar_train.data.loaders import SyntheticImages
    from cifar_train.data.transforms import apply_parameters, draw_parameters

    data = SyntheticImages(seed=SEED)
    raw, draws = (
        data.index_select(0, torch.arange(IMAGES)),
        draw_parameters(IMAGES, torch.Generator().manual_seed(8)),
    )
    size = 1 if one_by_one else IMAGES
    parts = [
        apply_parameters(raw[at : at + size], draws[at : at + size])
        for at in range(0, IMAGES, size)
    ]
    return torch.cat(parts).double(), data.labels[:IMAGES]
