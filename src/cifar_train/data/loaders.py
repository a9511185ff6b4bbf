"""Training and validation batches: which images they have, and how these are split and loaded.

CIFAR-100 is read where it is staged, and never fetched here, since compute nodes often have no
network. Synthetic images stand in for it: they have its shape, type and count, and can be learnt.
"""

from __future__ import annotations

import hashlib
import math
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, random_split

from cifar_train.config import TrainConfig
from cifar_train.data.cifar100 import (
    CHANNELS,
    CLASSES,
    FOLDER,
    IMAGE_SIZE,
    fetch_command,
    is_absent,
    read_images,
    verify_staged,
)
from cifar_train.data.transforms import BatchTransform, per_image_transform, scale_batch
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

    train, validation -- give (images [N, 3, 32, 32], labels int64 [N]). Images are float32
        in 0..1; with a `transform_batch`, the training images are still uint8.
        validation is None unless the configuration asks for it; the ranks share the
        held-out images without overlap, so that one rank may have a batch more than another.
    sampler         -- of the training images; call set_epoch at the start of each epoch.
    description     -- one line that says which images these are.
    steps_per_epoch -- batches of this rank, including a short last one.
    transform_batch -- makes training images from uint8 ones, on the device; or None.
    """

    train: DataLoader
    validation: DataLoader | None
    sampler: DistributedSampler
    description: str
    steps_per_epoch: int
    transform_batch: Callable[[torch.Tensor], torch.Tensor] | None


def resolve_data_source(config: TrainConfig) -> str:
    """What `config.data` means on this machine: "cifar100" or "synthetic".

    The checksums of staged files are verified. Raises UserError for files that are wanted but
    missing, and for files that are damaged.
    """
    if config.data == "synthetic":
        return "synthetic"
    if is_absent(config.data_path):
        if config.data == "auto":
            return "synthetic"
        raise UserError(
            f"CIFAR-100 is not staged in {config.data_path}; fetch it once, where there is network"
            f" (no GPU needed): {fetch_command(config.data_path)}"
        )
    verify_staged(config.data_path)
    return "cifar100"


def build_loaders(
    config: TrainConfig, source: str, rank: int, world_size: int, device_type: str
) -> Loaders:
    """The batches of one rank of `world_size`.

    `source` is what resolve_data_source returned, `device_type` is "cpu", "cuda" or "xpu". Raises
    UserError for more ranks or larger batches than there are images.
    """
    images, labels, description = _open(config, source)
    fixed = torch.Generator().manual_seed(SPLIT_SEED)
    training, held_out = random_split(range(len(labels)), SHARES, generator=fixed)
    _check_enough(len(training), config.batch_size, world_size)

    def dataset(members: Sequence[int], training: bool) -> Batches:
        if not config.batched_transforms:
            transform = partial(_transform_each, per_image_transform(training))
            return Batches(images, labels, members, transform, config.seed)
        return Batches(images, labels, members, None if training else scale_batch)

    sampler = DistributedSampler(training, num_replicas=world_size, rank=rank, seed=config.seed)
    train = _loader(dataset(training.indices, True), config, device_type, sampler)
    validation = None
    if config.validate:
        validation = _loader(
            dataset(held_out.indices[rank::world_size], False), config, device_type
        )
    return Loaders(
        train=train,
        validation=validation,
        sampler=sampler,
        description=description,
        steps_per_epoch=len(train),
        transform_batch=BatchTransform(config.seed, rank) if config.batched_transforms else None,
    )


class Batches:
    """A data set that returns whole batches (images [n, 3, 32, 32], labels int64 [n]) of some of
    the images.

    Images are uint8, as stored, unless they pass through `transform`, which gets the whole batch.
    With a seed, its random numbers depend on the seed and on which images are in the batch. So they
    are the same for any number of loader processes, and independent of the random numbers that the
    model draws, for dropout for instance.
    """

    def __init__(
        self,
        images: torch.Tensor | SyntheticImages,
        labels: torch.Tensor,
        members: Sequence[int],
        transform: Callable[[torch.Tensor], torch.Tensor] | None = None,
        seed: int | None = None,
    ) -> None:
        self._images = images
        self._labels = labels
        self._members = torch.tensor(members)
        self._transform = transform
        self._seed = seed

    def __len__(self) -> int:
        return len(self._members)

    def __getitems__(self, positions: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """One whole batch; DataLoader calls this, and `_as_stacked` passes it on."""
        members = self._members[positions]
        images = self._images.index_select(0, members)
        if self._transform is not None:
            with _random_numbers(self._seed, positions):
                images = self._transform(images)
        return images, self._labels[members]


@contextmanager
def lost_loaders_explained() -> Iterator[None]:
    """Raise UserError where loader processes are killed or silent; torch reports that by a
    RuntimeError, at any moment.
    """
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader"):
            raise
        raise UserError(
            f"a process that loads images was lost ({str(error).split('. ')[0].strip('.')}): likely"
            " memory ran out, /dev/shm is full (df -h /dev/shm) or files may not grow (ulimit -f);"
            " free some, or lower --num-workers"
        ) from error


def _transform_each(
    transform: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor
) -> torch.Tensor:
    """Transform each image of a batch on its own."""
    return torch.stack([transform(image) for image in images])


@contextmanager
def _random_numbers(seed: int | None, positions: Sequence[int]) -> Iterator[None]:
    """Let torch draw the random numbers of this batch on the CPU; its old state comes back
    afterwards.
    """
    if seed is None:
        yield
        return
    digest = hashlib.blake2b(
        np.array([seed, *positions], dtype=np.int64).tobytes(), digest_size=8
    ).digest()
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also reseed the GPUs.
        torch.default_generator.manual_seed(int.from_bytes(digest, "little"))
        yield


def _loader(
    dataset: Batches,
    config: TrainConfig,
    device_type: str,
    sampler: DistributedSampler | None = None,
) -> DataLoader:
    """A DataLoader over `dataset`, in its order if there is no sampler; torch limits each worker to
    one thread.

    Raises UserError where no worker could hand over a batch, which takes a file in shared memory.
    """
    batch_bytes = config.batch_size * CHANNELS * IMAGE_SIZE**2 * torch.float32.itemsize
    file_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if config.num_workers and 0 <= file_bytes < batch_bytes:
        raise UserError(
            f"no file may have more than {file_bytes:,} bytes (ulimit -f), but a batch of"
            f" {batch_bytes:,} is handed over in one: raise the limit, or give --num-workers 0"
        )
    return DataLoader(
        dataset,
        batch_size=config.batch_size,
        sampler=sampler,
        num_workers=config.num_workers,
        timeout=LONGEST_WAIT_S if config.num_workers else 0,
        collate_fn=_as_stacked,
        pin_memory=device_type != "cpu",
        # Workers are kept between epochs, but the validation images are used only once.
        persistent_workers=sampler is not None and config.num_workers > 0,
        # Without a generator of its own, DataLoader would draw from the model's random numbers.
        generator=torch.Generator().manual_seed(config.seed),
    )


def _as_stacked(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch


def _open(
    config: TrainConfig, source: str
) -> tuple[torch.Tensor | SyntheticImages, torch.Tensor, str]:
    """Images [N, 3, 32, 32], labels int64 [N] and a description of the images."""
    if source == "cifar100":
        images, labels = map(torch.from_numpy, read_images(config.data_path))
        return images, labels, f"CIFAR-100 from {config.data_path / FOLDER}"
    images = SyntheticImages(config.seed)
    reason = (
        f"CIFAR-100 is not staged in {config.data_path}; {fetch_command(config.data_path)}"
        " fetches it"
    )
    if config.data == "synthetic":
        reason = "asked for with --data synthetic"
    return images, images.labels, f"synthetic images ({reason})"


def _check_enough(images: int, batch_size: int, world_size: int) -> None:
    if world_size > images:
        raise UserError(
            f"{world_size:,} ranks cannot share {images:,} training images; start at most"
            f" {images:,} ranks"
        )
    share = math.ceil(images / world_size)
    if batch_size > share:
        raise UserError(
            f"--batch-size {batch_size} is more than the {share:,} of {images:,} training images"
            f" that each of {world_size:,} ranks gets; give at most --batch-size {share}"
        )


IMAGES = 50_000
"""Number of CIFAR-100's training images, before a fifth of them is held out."""

PATTERN_LEVELS = 160
NOISE_LEVELS = 96
"""Grey levels of the class pattern and of the noise: a choice, with a sum that stays within 255."""

PATTERN_CELLS = 4
"""Each class is a smooth random picture made from 4 x 4 cells, and can still be recognised after
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
