"""The training transforms of AMD's example, image by image with torchvision or on whole batches.

Both ways draw new random numbers for every image, from the same distributions: flip, then crop and
resize, then brightness, contrast and saturation in a random order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import grid_sample
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import to_dtype

from cifar_train.data.cifar100 import IMAGE_SIZE

CROP_AREA = (0.85, 1.0)
"""Share of the image's area that a crop keeps: AMD's PyTorch_Profiling example,
train_cifar_100.py.
"""

CROP_ASPECT = (3 / 4, 4 / 3)
"""Width over height of a crop: the default of torchvision's RandomResizedCrop."""

CROP_TRIES = 10
"""Draws after which torchvision's RandomResizedCrop gives up and takes the whole image."""

FLIP_PROBABILITY = 0.5

JITTER = 0.2
"""Factors of brightness, contrast and saturation lie between 1 - JITTER and 1 + JITTER."""

LUMA = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue in grey, as torchvision's rgb_to_grayscale has them (ITU-R
BT.601).
"""

CONTRAST, SATURATION = 1, 2
"""Columns of BatchParameters.factors; column 0 is brightness."""

DRAWN_AHEAD = 8192
"""Number of images whose parameters are drawn at once, so that thirty tiny operations are not
repeated for every batch.
"""


def per_image_transform(training: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """A transform of uint8 [3, 32, 32] to float32 in 0..1; for training with flip, crop and colour
    jitter.
    """
    steps = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    if training:
        steps += [
            v2.RandomHorizontalFlip(FLIP_PROBABILITY),
            v2.RandomResizedCrop(IMAGE_SIZE, scale=CROP_AREA, ratio=CROP_ASPECT, antialias=False),
            v2.ColorJitter(brightness=JITTER, contrast=JITTER, saturation=JITTER),
        ]
    return v2.Compose(steps)


def scale_batch(images: torch.Tensor) -> torch.Tensor:
    """Images uint8 [N, 3, 32, 32] as float32 in 0..1, without augmentation."""
    return to_dtype(images, torch.float32, scale=True)


@dataclass(frozen=True)
class BatchParameters:
    """What happens to each of N images. All tensors are on the device of the images.

    flip    -- bool [N], mirrored before the crop
    corner  -- float32 [N, 2], whole numbers: left column and top row of the crop in the mirrored
               image
    size    -- float32 [N, 2], whole numbers: width and height of the crop
    factors -- float32 [N, 3]: brightness, contrast, saturation
    order   -- int64 [N, 3]: columns of `factors` in the order in which they are applied
    """

    flip: torch.Tensor
    corner: torch.Tensor
    size: torch.Tensor
    factors: torch.Tensor
    order: torch.Tensor

    def part(self, start: int, stop: int) -> BatchParameters:
        """The parameters of some of the images."""
        return BatchParameters(*(values[start:stop] for values in vars(self).values()))


class BatchTransform:
    """The random training transforms for whole batches: uint8 [N, 3, 32, 32] to float32 in 0..1.

    It runs on the device of the images and never makes the host wait. It has random numbers of its
    own, which depend on seed, rank and the batches before.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self._seed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])
        self._generator: torch.Generator | None = None
        self._drawn: BatchParameters | None = None
        self._used = 0

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Transform the next batch."""
        if self._generator is None:
            self._generator = torch.Generator(images.device).manual_seed(self._seed)
        return apply_parameters(images, self._next_parameters(len(images)))

    def _next_parameters(self, count: int) -> BatchParameters:
        if self._drawn is None or self._used + count > len(self._drawn.flip):
            self._drawn = draw_parameters(max(count, DRAWN_AHEAD), self._generator)
            self._used = 0
        self._used += count
        return self._drawn.part(self._used - count, self._used)


def draw_parameters(count: int, generator: torch.Generator) -> BatchParameters:
    """Random parameters for `count` images, on the generator's device."""
    draws = torch.rand(count, 2 * CROP_TRIES + 9, generator=generator, device=generator.device)
    tries, places, flip, factors, keys = draws.split([2 * CROP_TRIES, 2, 1, 3, 3], dim=1)
    size = _draw_sizes(*tries.chunk(2, dim=1))
    return BatchParameters(
        flip=flip[:, 0] < FLIP_PROBABILITY,
        corner=(
            (IMAGE_SIZE + 1 - size) * places
        ).floor_(),  # 0 to IMAGE_SIZE - size, equally likely
        size=size,
        factors=factors * (2 * JITTER) + (1 - JITTER),
        order=keys.argsort(dim=1),
    )


def _draw_sizes(area_draws: torch.Tensor, aspect_draws: torch.Tensor) -> torch.Tensor:
    """Widths and heights of crops, [N, 2], from uniform draws [N, tries]: the first crop that fits,
    else the whole image.

    As in torchvision's RandomResizedCrop the area is uniform, and so is the logarithm of the aspect
    ratio.
    """
    smallest, largest = CROP_AREA
    low, high = np.log(CROP_ASPECT).tolist()
    # With the roots of area and aspect ratio, width = side * root and height = side / root.
    side = (area_draws * (largest - smallest) + smallest).sqrt_().mul_(IMAGE_SIZE)
    root = (aspect_draws * ((high - low) / 2) + low / 2).exp_()
    sizes = torch.stack((side * root, side / root), dim=2).round_()
    found, first = (sizes.amax(dim=2) <= IMAGE_SIZE).max(dim=1)
    chosen = sizes.gather(1, first[:, None, None].expand(-1, 1, 2))[:, 0]
    return torch.where(found[:, None], chosen, IMAGE_SIZE)


def apply_parameters(images: torch.Tensor, parameters: BatchParameters) -> torch.Tensor:
    """Flip, crop, resize and colour each image as `parameters` say: uint8 [N, 3, 32, 32] to float32
    in 0..1.
    """
    # A flip is a sign, and a crop with its resize is a shift and a scale, so one grid_sample does
    # all of them for all images at once.
    corner, size = parameters.corner, parameters.size
    flipped = torch.stack((parameters.flip, torch.zeros_like(parameters.flip)), dim=1)
    sign = torch.where(flipped, -1.0, 1.0)
    middle = sign * ((corner * 2 + size) / IMAGE_SIZE - 1)
    reach = (size - 1) / IMAGE_SIZE
    factor = parameters.factors.gather(1, parameters.order)
    crop = (
        middle[:, :, None],
        (sign * size / IMAGE_SIZE)[:, :, None],
        (middle - reach)[:, :, None],
        (middle + reach)[:, :, None],
    )
    shares = (
        factor[:, :, None, None],
        ((1 - factor) * (parameters.order == CONTRAST))[:, :, None, None],
        ((1 - factor) * (parameters.order == SATURATION))[:, :, None, None],
    )
    places = _sampling_places(*crop)
    cropped = grid_sample(
        scale_batch(images), places, mode="bilinear", padding_mode="border", align_corners=False
    )
    return _jitter(cropped, *shares)


def _sampling_places(
    middle: torch.Tensor, scale: torch.Tensor, lowest: torch.Tensor, highest: torch.Tensor
) -> torch.Tensor:
    """Where in its image each output pixel is read, [N, 32, 32, 2] as (column, row): flip, crop and
    resize in one.

    All arguments are [N, 2, 1], for columns and rows, in the units of grid_sample: -1 to 1 between
    the outer edges of the image. So a pixel is 2 / IMAGE_SIZE wide, and mirroring changes the sign.
    A place is middle + scale * place of the output pixel. `lowest` and `highest` are the outermost
    pixels of the crop, beyond which torchvision repeats the edge.
    """
    last = 1 - 1 / IMAGE_SIZE
    own = torch.linspace(-last, last, IMAGE_SIZE, device=middle.device)
    columns, rows = torch.addcmul(middle, scale, own).clamp_(lowest, highest).unbind(dim=1)
    shape = (len(middle), IMAGE_SIZE, IMAGE_SIZE)
    return torch.stack((columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)), dim=3)


def _jitter(
    images: torch.Tensor,
    factor: torch.Tensor,
    mean_share: torch.Tensor,
    picture_share: torch.Tensor,
) -> torch.Tensor:
    """Brightness, contrast and saturation of images [N, 3, 32, 32], each image in its own order.

    Each of them is factor * image + (1 - factor) * reference, kept within 0..1. The reference is
    black for brightness, the image's mean grey for contrast, and its grey picture for saturation.
    The shares, [N, 3, 1, 1] in the order of application, are 1 - factor where their reference is
    the one, and 0 elsewhere.
    """
    for turn in range(3):
        red, green, blue = images.unbind(dim=1)
        grey = (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])
        mean = grey.mean(dim=(1, 2), keepdim=True).mul_(mean_share[:, turn])
        reference = grey.mul_(picture_share[:, turn]).add_(mean)
        images = torch.addcmul(reference[:, None], images, factor[:, turn, None]).clamp_(0, 1)
    return images
