"""The training transforms from AMD's example, for single images with torchvision or for whole
batches.

Both versions draw new random numbers for each image. The transforms flip the image, crop and
resize it, and then change its brightness, contrast and saturation.
"""

from __future__ import annotations

import torch
from torch.nn.functional import grid_sample
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import rgb_to_grayscale, to_dtype

from cifar_train.data.cifar100 import IMAGE_SIZE

CROP_AREA = (0.85, 1.0)
"""Range of the image area that a crop keeps.

The values come from AMD's PyTorch_Profiling example (train_cifar_100.py).
"""

CROP_ASPECT = (3 / 4, 4 / 3)
"""Aspect ratio range of a crop (width divided by height), the default of torchvision's
RandomResizedCrop.
"""

JITTER = 0.2
"""Largest deviation of a brightness, contrast or saturation factor from 1."""

DRAWS = 8
"""Random numbers per image: flip, area, aspect, column, row, brightness, contrast, saturation."""

PER_IMAGE = v2.Compose(
    [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.RandomHorizontalFlip(),
        v2.RandomResizedCrop(IMAGE_SIZE, scale=CROP_AREA, ratio=CROP_ASPECT, antialias=False),
        v2.ColorJitter(brightness=JITTER, contrast=JITTER, saturation=JITTER),
    ]
)
"""Transform of one image, from uint8 [3, 32, 32] to float32 in 0..1."""


class BatchTransform:
    """Transform of whole batches, from uint8 [N, 3, 32, 32] to float32 in 0..1.

    The transform runs on the images' device and never blocks the host. Its random numbers depend on
    the seed, the rank and the previous batches.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self._seed = hash((seed, rank)) % 2**32
        self._generator: torch.Generator | None = None

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Transform the next batch."""
        if self._generator is None:
            self._generator = torch.Generator(images.device).manual_seed(self._seed)
        return apply_parameters(images, draw_parameters(len(images), self._generator))


def draw_parameters(count: int, generator: torch.Generator) -> torch.Tensor:
    """Return random numbers [count, DRAWS] in 0..1 on the generator's device."""
    return torch.rand(count, DRAWS, generator=generator, device=generator.device)


def apply_parameters(images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Flip, crop, resize and color each image in a batch according to its random numbers."""
    flip, area, aspect, column, row, *factors = draws.unbind(dim=1)
    smallest, largest = CROP_AREA
    side = (smallest + area * (largest - smallest)).sqrt()
    # The logarithm of the aspect ratio is uniform. The ratio's square root lengthens one side of
    # the crop and shortens the other side.
    root = (CROP_ASPECT[1] ** 0.5) ** (2 * aspect - 1)
    width, height = (side * root).clamp(max=1), (side / root).clamp(max=1)
    # In grid_sample's coordinates, the outer pixel edges of the image are at -1 and 1.
    last = 1 - 1 / IMAGE_SIZE
    pixels = torch.linspace(-last, last, IMAGE_SIZE, device=images.device)
    columns = (1 - width) * (2 * column - 1) + pixels[:, None] * torch.where(
        flip < 0.5, -width, width
    )
    rows = (1 - height) * (2 * row - 1) + pixels[:, None] * height
    shape = (IMAGE_SIZE, IMAGE_SIZE, len(images))
    grid = torch.stack((columns.expand(shape), rows[:, None].expand(shape)), dim=-1)
    result = grid_sample(
        to_dtype(images, torch.float32, scale=True),
        grid.permute(2, 0, 1, 3),
        padding_mode="border",
        align_corners=False,
    )
    brightness, contrast, saturation = (
        (1 + JITTER * (2 * factor - 1))[:, None, None, None] for factor in factors
    )
    result = (result * brightness).clamp(0, 1)
    mean = rgb_to_grayscale(result).mean(dim=(1, 2, 3), keepdim=True)
    result = (mean + contrast * (result - mean)).clamp(0, 1)
    gray = rgb_to_grayscale(result)
    return (gray + saturation * (result - gray)).clamp(0, 1)
