"""Training and validation batches: from which images, cut up how, loaded how.

CIFAR-100 is read where it is staged and never fetched here, as compute nodes often
have no network; synthetic images of the same shape stand in for it. Importing this
module does not import torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.config import TrainConfig
from cifar_train.data.cifar100 import (
    FILE_MD5S,
    FOLDER,
    fetch_command,
    is_absent,
    is_staged,
    read_images,
    verify_staged,
)
from cifar_train.data.datasets import BatchedDataset, ImageSource, PerImageDataset, as_stacked
from cifar_train.data.synthetic import SyntheticImages
from cifar_train.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler

__all__ = ["UNVERIFIED", "Loaders", "build_loaders", "is_staged", "resolve_data_source", "verify_staged"]

UNVERIFIED = "CIFAR_TRAIN_UNVERIFIED"
"""Set this environment variable to 1 to accept files in CIFAR-100's format with other contents."""

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
    train_images    -- training images of all ranks together.
    steps_per_epoch -- batches of this rank, the short last one included.
    transform_batch -- makes the training images on the device from uint8, or None.
    """

    train: DataLoader
    validation: DataLoader | None
    sampler: DistributedSampler
    description: str
    train_images: int
    steps_per_epoch: int
    transform_batch: Callable[[torch.Tensor], torch.Tensor] | None


def resolve_data_source(config: TrainConfig, *, verify: bool | None = None) -> str:
    """What `config.data` means here and now: "cifar100" or "synthetic".

    The checksums of the staged files are verified unless `verify` is False; None
    leaves that to the environment variable CIFAR_TRAIN_UNVERIFIED. Raises UserError
    for files that are wanted and missing, or there and damaged.
    """
    if config.data == "synthetic":
        return "synthetic"
    if is_absent(config.data_path):
        if config.data == "auto":
            return "synthetic"
        raise UserError(
            f"CIFAR-100 is not staged in {config.data_path}; fetch it once, where there is network (no GPU needed): "
            f"{fetch_command(config.data_path)}"
        )
    verify = not _unverified() if verify is None else verify
    verify_staged(config.data_path, FILE_MD5S if verify else None)
    return "cifar100"


def build_loaders(config: TrainConfig, source: str, rank: int, world_size: int, device_type: str) -> Loaders:
    """The batches of one rank of `world_size`.

    `source` is what resolve_data_source gave, `device_type` "cpu", "cuda" or "xpu".
    Raises UserError for more ranks or larger batches than there are images.
    """
    import torch
    from torch.utils.data import DistributedSampler, random_split

    images, labels, description = _open(config, source)
    fixed = torch.Generator().manual_seed(SPLIT_SEED)
    training, held_out = random_split(range(len(labels)), SHARES, generator=fixed)
    _check_enough(len(training), config.batch_size, world_size)
    maker = _LoaderMaker(config, images, labels, device_type)
    sampler = DistributedSampler(training, num_replicas=world_size, rank=rank, seed=config.seed)
    train = maker.make(training.indices, sampler, training=True)
    return Loaders(
        train=train,
        validation=maker.make(held_out.indices[rank::world_size], None, training=False) if config.validate else None,
        sampler=sampler,
        description=description,
        train_images=len(training),
        steps_per_epoch=len(train),
        transform_batch=_batch_transform(config, rank),
    )


def _unverified() -> bool:
    return os.environ.get(UNVERIFIED) == "1"


def _open(config: TrainConfig, source: str) -> tuple[ImageSource, torch.Tensor, str]:
    """Images, labels int64 [N] and a description."""
    import torch

    if source == "cifar100":
        images, labels = map(torch.from_numpy, read_images(config.data_path))
        note = f" (checksums not verified: {UNVERIFIED}=1)" if _unverified() else ""
        return images, labels, f"CIFAR-100 from {config.data_path / FOLDER}{note}"
    images = SyntheticImages(config.seed)
    return images, images.labels, f"synthetic images ({_why_synthetic(config.data, config.data_path)})"


def _why_synthetic(asked: str, data_path: Path) -> str:
    if asked == "synthetic":
        return "asked for with --data synthetic"
    return f"CIFAR-100 is not staged in {data_path}; {fetch_command(data_path)} fetches it"


def _check_enough(images: int, batch_size: int, world_size: int) -> None:
    if world_size > images:
        raise UserError(f"{world_size:,} ranks cannot share {images:,} training images; start at most {images:,} ranks")
    share = math.ceil(images / world_size)
    if batch_size > share:
        raise UserError(
            f"--batch-size {batch_size} is more than the {share:,} of {images:,} training images that each of "
            f"{world_size:,} ranks gets; give at most --batch-size {share}"
        )


@dataclass(frozen=True)
class _LoaderMaker:
    """What the training and the validation loader have in common."""

    config: TrainConfig
    images: ImageSource
    labels: torch.Tensor
    device_type: str

    def make(self, members: Sequence[int], sampler: DistributedSampler | None, training: bool) -> DataLoader:
        """A DataLoader over `members`, in their order if there is no sampler.

        torch itself limits each worker process to one thread.
        """
        import torch

        batched, workers = self.config.batched_transforms, self.config.num_workers
        return torch.utils.data.DataLoader(
            self._dataset(members, training),
            batch_size=self.config.batch_size,
            sampler=sampler,
            num_workers=workers,
            collate_fn=as_stacked if batched else None,
            pin_memory=self.device_type != "cpu",
            # Workers are kept between epochs; the validation images are gone through only once.
            persistent_workers=training and workers > 0,
            # Without a generator of its own, DataLoader draws from the random numbers of the model.
            generator=torch.Generator().manual_seed(self.config.seed),
        )

    def _dataset(self, members: Sequence[int], training: bool) -> BatchedDataset | PerImageDataset:
        from cifar_train.data.transforms import per_image_transform, scale_batch

        if self.config.batched_transforms:
            return BatchedDataset(self.images, self.labels, members, None if training else scale_batch)
        return PerImageDataset(self.images, self.labels, members, per_image_transform(training), self.config.seed)


def _batch_transform(config: TrainConfig, rank: int) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if not config.batched_transforms:
        return None
    from cifar_train.data.transforms import BatchTransform

    return BatchTransform(config.seed, rank)
