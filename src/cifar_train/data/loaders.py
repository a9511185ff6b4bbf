"""Training batches from CIFAR-100 or synthetic images.

This module reads CIFAR-100 from its staged files and never downloads it, because compute nodes
often don't have a network. Synthetic images can replace CIFAR-100. They have the same shape,
type and count, and a model can learn from them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, random_split
from torchvision.datasets import CIFAR100

from cifar_train.config import TrainConfig
from cifar_train.data.cifar100 import (
    CHANNELS,
    CLASSES,
    FOLDER,
    IMAGE_SIZE,
    fetch_command,
    is_absent,
)
from cifar_train.data.transforms import PER_IMAGE, BatchTransform
from tidyprof.errors import UserError

LONGEST_WAIT_S = 300
"""Maximum wait in seconds for a batch from a data loader worker.

Without this limit, the wait would never end if shared memory is too small for a batch.
"""

SHARES = (0.8, 0.2)
SPLIT_SEED = 55
"""Seed of the data split.

AMD's PyTorch_Profiling example uses this seed to split the 50,000 training images 80 to 20.
"""


@dataclass(frozen=True)
class Loaders:
    """Source of a rank's batches.

    - train: iterable of batches (images [N, 3, 32, 32], labels int64 [N]). Images are float32 in
      0..1, or uint8 if there is a `transform_batch`.
    - sampler: sampler of the images. Call its set_epoch method at the start of each epoch.
    - description: one-line description of the images.
    - steps_per_epoch: number of this rank's batches, including a short last batch.
    - transform_batch: function that converts uint8 images to training images on the device, or
      None.
    """

    train: DataLoader
    sampler: DistributedSampler
    description: str
    steps_per_epoch: int
    transform_batch: Callable[[torch.Tensor], torch.Tensor] | None


def resolve_data_source(config: TrainConfig) -> str:
    """Return the data source for `config.data` on this machine: "cifar100" or "synthetic"."""
    if config.data == "auto":
        return "synthetic" if is_absent(config.data_path) else "cifar100"
    return config.data


def build_loaders(
    config: TrainConfig, source: str, rank: int, world_size: int, device_type: str
) -> Loaders:
    """Return the batches of one rank of `world_size`.

    `source` is the result of resolve_data_source, and `device_type` is "cpu" or "cuda". Raises
    UserError for missing or damaged files. Also raises UserError if the number of ranks or the
    batch size exceeds the number of images.
    """
    images, labels, description = _open(config, source)
    fixed = torch.Generator().manual_seed(SPLIT_SEED)
    training, _ = random_split(range(len(labels)), SHARES, generator=fixed)
    share = math.ceil(len(training) / world_size)
    if world_size > len(training) or config.batch_size > share:
        raise UserError(
            f"--batch-size {config.batch_size} is too large: it exceeds the {share:,} of"
            f" {len(training):,} training images that each of {world_size:,} ranks gets."
        )
    sampler = DistributedSampler(training, num_replicas=world_size, rank=rank, seed=config.seed)
    seed = None if config.batched_transforms else config.seed
    train = DataLoader(
        Batches(images, labels, training.indices, seed),
        batch_size=config.batch_size,
        sampler=sampler,
        num_workers=config.num_workers,
        timeout=LONGEST_WAIT_S if config.num_workers else 0,
        collate_fn=_as_stacked,
        pin_memory=device_type != "cpu",
        persistent_workers=config.num_workers > 0,
        # Without a separate generator, DataLoader would change the model's random number state.
        generator=torch.Generator().manual_seed(config.seed),
    )
    transform = BatchTransform(config.seed, rank) if config.batched_transforms else None
    return Loaders(train, sampler, description, len(train), transform)


class Batches:
    """Dataset that returns whole batches (images [n, 3, 32, 32], labels int64 [n]).

    If there is a seed, the dataset transforms each image. The random numbers depend only on the
    seed and the images in the batch. The number of data loader workers and the model's random
    numbers don't affect the transforms.
    """

    def __init__(
        self,
        images: torch.Tensor | SyntheticImages,
        labels: torch.Tensor,
        members: Sequence[int],
        seed: int | None,
    ) -> None:
        self._images = images
        self._labels = labels
        self._members = torch.tensor(members)
        self._seed = seed

    def __len__(self) -> int:
        return len(self._members)

    def __getitems__(self, positions: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one whole batch. DataLoader calls this method, and `_as_stacked` forwards the
        batch.
        """
        members = self._members[positions]
        images = self._images.index_select(0, members)
        if self._seed is not None:
            with _random_numbers(self._seed, positions):
                images = torch.stack([PER_IMAGE(image) for image in images])
        return images, self._labels[members]


def _as_stacked(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch


@contextmanager
def _random_numbers(seed: int, positions: Sequence[int]) -> Iterator[None]:
    """Seed torch's CPU generator for this batch, and restore its state after the block."""
    batch = np.array([seed, *positions], dtype=np.int64).tobytes()
    digest = hashlib.blake2b(batch, digest_size=8).digest()
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also reseed the GPUs.
        torch.default_generator.manual_seed(int.from_bytes(digest, "little"))
        yield


def _open(
    config: TrainConfig, source: str
) -> tuple[torch.Tensor | SyntheticImages, torch.Tensor, str]:
    """Return images [N, 3, 32, 32], labels int64 [N] and a description of the images."""
    if source == "cifar100":
        try:
            data = CIFAR100(config.data_path)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"CIFAR-100 in {config.data_path} is missing or damaged. Download it once on a"
                f" machine with a network (no GPU needed): {fetch_command(config.data_path)}"
            ) from error
        images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
        return images, torch.tensor(data.targets), f"CIFAR-100 from {config.data_path / FOLDER}"
    synthetic = SyntheticImages(config.seed)
    reason = (
        f"CIFAR-100 isn't staged in {config.data_path}; to download it, run"
        f" {fetch_command(config.data_path)}"
    )
    if config.data == "synthetic":
        reason = "requested with --data synthetic"
    return synthetic, synthetic.labels, f"synthetic images ({reason})"


IMAGES = 50_000
"""Number of CIFAR-100 training images, including the fifth that is later left out."""

PATTERN_LEVELS = 160
NOISE_LEVELS = 96
"""Gray levels of the class pattern and the noise.

The values are arbitrary, but their sum doesn't exceed 255.
"""

PATTERN_CELLS = 4
"""Number of cells along one side of a class pattern.

Each class has a smooth random pattern of 4 x 4 cells. The pattern remains recognizable after flips,
crops and color jitter.
"""

NOISE_PICTURES = 2048
"""Number of noise images.

The noise images are created once (6 MB), and all classes share them. No two images of one class use
the same noise image.
"""


class SyntheticImages:
    """Synthetic uint8 images [3, 32, 32], created on demand as a class pattern plus noise.

    The same seed produces the same images. `labels` has the type int64 [count] and contains each
    class equally often. The object uses 7 MB, but storing all images would take 154 MB.
    `index_select` works like the tensor method of the same name.
    """

    def __init__(self, seed: int, count: int = IMAGES) -> None:
        generator = torch.Generator().manual_seed(seed)
        cells = torch.rand(CLASSES, CHANNELS, PATTERN_CELLS, PATTERN_CELLS, generator=generator)
        smooth = torch.nn.functional.interpolate(
            cells, size=(IMAGE_SIZE, IMAGE_SIZE), mode="bilinear"
        )
        self._patterns = (smooth * PATTERN_LEVELS).to(torch.uint8)
        noise_shape = (NOISE_PICTURES, CHANNELS, IMAGE_SIZE, IMAGE_SIZE)
        self._noise = torch.randint(
            NOISE_LEVELS, noise_shape, dtype=torch.uint8, generator=generator
        )
        self.labels = torch.arange(count) % CLASSES
        # Each class starts at a random noise image, and each image uses the next noise image.
        # Therefore, no two images of a class have the same noise.
        first = torch.randint(NOISE_PICTURES, (CLASSES,), generator=generator)
        self._noise_numbers = (first[self.labels] + torch.arange(count) // CLASSES) % NOISE_PICTURES

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:
        """Return the images with these indices as a tensor [n, 3, 32, 32].

        `index` has the type int64 [n], and `dim` must be 0.
        """
        patterns = self._patterns.index_select(dim, self.labels[index])
        return patterns.add_(self._noise.index_select(dim, self._noise_numbers[index]))
