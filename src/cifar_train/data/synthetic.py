"""Images to train on where CIFAR-100 is not staged: same shape, type and count, and learnable."""

from __future__ import annotations

import torch

from cifar_train.data.cifar100 import CHANNELS, CLASSES, IMAGE_SIZE

IMAGES = 50_000
"""As many as CIFAR-100 has for training, before the held-out fifth is taken off."""

PATTERN_LEVELS = 160
NOISE_LEVELS = 96
"""Grey levels of the class pattern and of the noise; their sum stays within 255."""

PATTERN_CELLS = 4
"""Each class is a smooth random picture from 4 x 4 cells, which flips, crops and jitter leave recognisable."""

NOISE_PICTURES = 2048
"""Noise is made once, 6 MB, and shared between classes; within a class no two images have the same."""


class SyntheticImages:
    """uint8 images [3, 32, 32], made when asked for: class pattern plus noise.

    The same seed gives the same images. `labels` is int64 [count], all classes equally
    often. Needs 7 MB where the stored pixels would need 154 MB. `index_select` is a tensor's.
    """

    def __init__(self, seed: int, count: int = IMAGES) -> None:
        generator = torch.Generator().manual_seed(seed)
        cells = torch.rand(CLASSES, CHANNELS, PATTERN_CELLS, PATTERN_CELLS, generator=generator)
        smooth = torch.nn.functional.interpolate(cells, size=(IMAGE_SIZE, IMAGE_SIZE), mode="bilinear")
        self._patterns = (smooth * PATTERN_LEVELS).to(torch.uint8)
        noise_shape = (NOISE_PICTURES, CHANNELS, IMAGE_SIZE, IMAGE_SIZE)
        self._noise = torch.randint(NOISE_LEVELS, noise_shape, dtype=torch.uint8, generator=generator)
        self.labels = torch.arange(count) % CLASSES
        first = torch.randint(NOISE_PICTURES, (CLASSES,), generator=generator)
        self._noise_numbers = (first[self.labels] + torch.arange(count) // CLASSES) % NOISE_PICTURES

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:
        """The images with the numbers int64 [n], as [n, 3, 32, 32]; `dim` must be 0."""
        patterns = self._patterns.index_select(dim, self.labels[index])
        return patterns.add_(self._noise.index_select(dim, self._noise_numbers[index]))
