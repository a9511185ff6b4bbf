"""The three classifiers, built from their default configurations; no weights are downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cifar_train.data.cifar100 import CLASSES, IMAGE_SIZE


def build_model(name: str) -> nn.Module:
    """A freshly initialized `resnet` (ResNet-50), `vit` (ViT-B/16) or `swinv2` classifier on the
    CPU.

    Input float [N, 3, 32, 32], output object with `.logits` [N, 100].
    """
    # transformers reports on weights and back ends that are not used here.
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
    """FLOPs of forward and backward for one image, counted on shapes alone (no memory, no device).

    Counts matrix products and convolutions, as torch.utils.flop_counter does; a
    multiplication and an addition are two FLOPs.
    """
    with torch.device("meta"):
        model = build_model(name)
        # Two images, since batch norm refuses a single value per channel.
        images = torch.empty(2, 3, IMAGE_SIZE, IMAGE_SIZE)
    counter = FlopCounterMode(display=False)
    with counter:
        model(images).logits.sum().backward()
    return counter.get_total_flops() // 2
