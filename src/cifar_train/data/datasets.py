"""What a DataLoader reads from: image by image with transforms, or whole batches as they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch


class ImageSource(Protocol):
    """uint8 images; a tensor [N, 3, 32, 32] is one."""

    def __getitem__(self, index: int) -> torch.Tensor:
        """One image, [3, 32, 32]."""

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:
        """The images with the numbers int64 [n], as [n, 3, 32, 32]; `dim` is 0. Far faster than images[index]."""


class PerImageDataset:
    """Pairs (image float32 [3, 32, 32], label), every image transformed on its own.

    A batch's random numbers follow from the seed and from which images are in it. So
    they are the same for any number of loader processes, and what the model draws
    (dropout, say) neither changes them nor is changed by them.
    """

    def __init__(
        self,
        images: ImageSource,
        labels: torch.Tensor,
        members: Sequence[int],
        transform: Callable[[torch.Tensor], torch.Tensor],
        seed: int,
    ) -> None:
        self._images = images
        self._labels = labels[members].tolist()
        self._members = members
        self._transform = transform
        self._seed = seed

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        return self._transform(self._images[self._members[position]]), self._labels[position]

    def __getitems__(self, positions: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        """The pairs of one batch; DataLoader calls this and then stacks them."""
        with _random_numbers(self._seed, positions):
            return [self[position] for position in positions]


class BatchedDataset:
    """Batches (images [n, 3, 32, 32], labels int64 [n]), taken in one piece without a loop over images.

    Images come as stored, uint8, or through `transform`, which gets the whole batch.
    """

    def __init__(
        self,
        images: ImageSource,
        labels: torch.Tensor,
        members: Sequence[int],
        transform: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        import torch

        self._images = images
        self._labels = labels
        self._members = torch.tensor(members)
        self._transform = transform

    def __len__(self) -> int:
        return len(self._members)

    def __getitems__(self, positions: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """One whole batch; DataLoader calls this, and `as_stacked` passes it on."""
        members = self._members[positions]
        images = self._images.index_select(0, members)
        if self._transform is not None:
            images = self._transform(images)
        return images, self._labels[members]


def as_stacked(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The collate function of BatchedDataset: its batches are already stacked."""
    return batch


@contextmanager
def _random_numbers(seed: int, positions: Sequence[int]) -> Iterator[None]:
    """Let torch draw the random numbers of this batch on the CPU; the old state returns afterwards."""
    import torch

    digest = hashlib.blake2b(np.array([seed, *positions], dtype=np.int64).tobytes(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also reseed the GPUs.
        torch.default_generator.manual_seed(int.from_bytes(digest, "little"))
        yield
