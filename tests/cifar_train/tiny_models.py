"""The three architectures with few channels and layers."""

from __future__ import annotations

import transformers


def _resnet():
    config = transformers.ResNetConfig(
        num_labels=100, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    return transformers.ResNetForImageClassification(config)


def _vit():
    config = transformers.ViTConfig(
        image_size=32,
        num_labels=100,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return transformers.ViTForImageClassification(config)


def _swinv2():
    config = transformers.Swinv2Config(
        image_size=32, num_labels=100, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4
    )
    return transformers.Swinv2ForImageClassification(config)


TINY_MODELS = {"resnet": _resnet, "vit": _vit, "swinv2": _swinv2}
