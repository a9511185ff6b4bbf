"""A short training run whose images are made slowly, one by one, in the training process.

It ends with the exit code in its argument, or 0. The standard library and torch are enough for it.
"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Random images, each of which takes 2 ms."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.002)
        return torch.rand(64), index % 10


torch.set_num_threads(1)  # so that other programs hardly disturb it
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for images, labels in DataLoader(Images(), batch_size=32):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
sys.exit(int(*sys.argv[1:]))
