"""Training batches: which images they have, and how these are split and loaded.

CIFAR-100 is read where it is staged, and never fetched here, because compute nodes often have no
network. Synthetic images stand in for it: they have its shape, type and count, and can be learned.
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
"""Longest wait for a batch of a loader process: one that cannot be handed over, for lack of shared
memory, would never come.
"""

SHARES = (0.8, 0.2)
SPLIT_SEED = 55
"""AMD's PyTorch_Profiling example splits the 50,000 training images 80 to 20 with this seed."""


@dataclass(frozen=True)
class Loaders:
    """Where a rank gets its batches from.

    train           -- gives (images [N, 3, 32, 32], labels int64 [N]). Images are float32 in 0..1;
                       with a `transform_batch` they are still uint8.
    sampler         -- of the images; call set_epoch at the start of each epoch.
    description     -- one line that says which images these are.
    steps_per_epoch -- batches of this rank, including a short last one.
    transform_batch -- makes training images from uint8 ones, on the device; or None.
    """

    train: DataLoader
    sampler: DistributedSampler
    description: str
    steps_per_epoch: int
    transform_batch: Callable[[torch.Tensor], torch.Tensor] | None


def resolve_data_source(config: TrainConfig) -> str:
    """Return what `config.data` means on this machine: "cifar100" or "synthetic"."""
    if config.data == "auto":
        return "synthetic" if is_absent(config.data_path) else "cifar100"
    return config.data


def build_loaders(
    config: TrainConfig, source: str, rank: int, world_size: int, device_type: str
) -> Loaders:
    """Return the batches of one rank of `world_size`.

    `source` is what resolve_data_source returned, `device_type` is "cpu" or "cuda". Raises
    UserError for missing or damaged files, and for more ranks or larger batches than images.
    """
    images, labels, description = _open(config, source)
    fixed = torch.Generator().manual_seed(SPLIT_SEED)
    training, _ = random_split(range(len(labels)), SHARES, generator=fixed)
    share = math.ceil(len(training) / world_size)
    if world_size > len(training) or config.batch_size > share:
        raise UserError(
            f"--batch-size {config.batch_size} is more than the {share:,} of {len(training):,}"
            f" training images that each of {world_size:,} ranks gets"
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
        # Without a generator of its own, DataLoader would draw from the model's random numbers.
        generator=torch.Generator().manual_seed(config.seed),
    )
    transform = BatchTransform(config.seed, rank) if config.batched_transforms else None
    return Loaders(train, sampler, description, len(train), transform)


class Batches:
    """A data set that returns whole batches (images [n, 3, 32, 32], labels int64 [n]).

    With a seed, each image is transformed. The random numbers depend on the seed and on the images
    in the batch. So they are the same for any number of loader processes, and independent of the
    random numbers that the model draws.
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
        """Return one whole batch; DataLoader calls this, and `_as_stacked` passes it on."""
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
    """Let torch draw the random numbers of this batch on the CPU, then restore its state."""
    batch = np.array([seed, *positions], dtype=np.int64).tobytes()
    digest = hashlib.blake2b(batch, digest_size=8).digest()
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also reseed the GPUs.
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
                f"CIFAR-100 in {config.data_path} is missing or damaged; fetch it once, where there"
                f" is network (no GPU needed): {fetch_command(config.data_path)}"
            ) from error
        images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
        return images, torch.tensor(data.targets), f"CIFAR-100 from {config.data_path / FOLDER}"
    synthetic = SyntheticImages(config.seed)
    reason = (
        f"CIFAR-100 is not staged in {config.data_path}; {fetch_command(config.data_path)}"
        " fetches it"
    )
    if config.data == "synthetic":
        reason = "asked for with --data synthetic"
    return synthetic, synthetic.labels, f"synthetic images ({reason})"


IMAGES = 50_000
"""Number of CIFAR-100's training images, before a fifth of them is left out."""

PATTERN_LEVELS = 160
NOISE_LEVELS = 96
"""Gray levels of the class pattern and of the noise: a choice, with a sum that stays within 255."""

PATTERN_CELLS = 4
"""Each class is a smooth random picture made from 4 x 4 cells, and can still be recognized after
flips, crops and jitter.
"""

NOISE_PICTURES = 2048
"""Pictures of noise, which are made once (6 MB) and shared between classes; no two images of one
class have the same.
"""


class SyntheticImages:
    """uint8 images [3, 32, 32], made on demand from the pattern of their class plus noise.

    The same seed gives the same images. `labels` is int64 [count], with all classes equally often.
    Takes 7 MB, while stored images would take 154 MB. `index_select` works like that of a tensor.
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
        # From a random first one on, each image of a class takes the next noise picture, so that no
        # two of them have the same.
        first = torch.randint(NOISE_PICTURES, (CLASSES,), generator=generator)
        self._noise_numbers = (first[self.labels] + torch.arange(count) // CLASSES) % NOISE_PICTURES

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:
        """The images with the numbers int64 [n], as [n, 3, 32, 32]; `dim` must be 0."""
        patterns = self._patterns.index_select(dim, self.labels[index])
        return patterns.add_(self._noise.index_select(dim, self._noise_numbers[index]))
