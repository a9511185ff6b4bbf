"""The three image classifiers in their default configurations. No weights are downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cifar_train.data.cifar100 import CLASSES, IMAGE_SIZE


def build_model(name: str) -> nn.Module:
    """Return a newly initialized classifier on the CPU: `resnet` (ResNet-50), `vit` (ViT-B/16) or
    `swinv2`.

    The input is a float tensor [N, 3, 32, 32]. The output is an object whose attribute `.logits`
    has the shape [N, 100].
    """
    # By default, transformers prints irrelevant messages about weights and back ends.
    transformers.logging.set_verbosity_error()
    return MODELS[name]()


def _new(family: str, **more: int) -> nn.Module:
    config = getattr(transformers, f"{family}Config")(num_labels=CLASSES, **more)
    return getattr(transformers, f"{family}ForImageClassification")(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet": partial(_new, "ResNet"),
    "vit": partial(_new, "ViT", image_size=IMAGE_SIZE),
    "swinv2": partial(_new, "Swinv2", image_size=IMAGE_SIZE),
}


def training_flops_per_image(name: str) -> int:
    """Return the FLOPs of one forward and backward pass for one image.

    The count needs no memory or device because it uses only tensor shapes. The count covers
    matrix products and convolutions, as torch.utils.flop_counter does. A multiply-add counts as
    two FLOPs.
    """
    with torch.device("meta"):
        model = build_model(name)
        # Use two images because batch norm rejects a single value per channel.
        images = torch.empty(2, 3, IMAGE_SIZE, IMAGE_SIZE)
    counter = FlopCounterMode(display=False)
    with counter:
        model(images).logits.sum().backward()
    return counter.get_total_flops() // 2
