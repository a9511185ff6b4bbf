"""Written by an engineer who reads an endless stream and has little memory. An IterableDataset of
synthetic sensor windows, a small convolution network, gradient accumulation over four batches.
"""

import torch
import torch.nn as nn
from instrument_me import Watch
from torch.utils.data import DataLoader, IterableDataset

ACCUMULATE = 4


class Stream(IterableDataset):
    def __init__(self, seed, channels=6, length=512):
        self.seed, self.channels, self.length = seed, channels, length

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        time = torch.arange(self.length) / self.length
        while True:
            label = int(torch.randint(0, 5, (1,), generator=generator))
            wave = torch.sin(2 * torch.pi * (3 + 4 * label) * time)
            yield wave + 0.5 * torch.randn(self.channels, self.length, generator=generator), label


torch.set_num_threads(1)
torch.manual_seed(0)
loader = DataLoader(Stream(seed=5), batch_size=32)
model = nn.Sequential(
    nn.Conv1d(6, 64, 7, padding=3),
    nn.GELU(),
    nn.Conv1d(64, 96, 7, stride=2, padding=3),
    nn.BatchNorm1d(96),
    nn.GELU(),
    nn.Conv1d(96, 128, 7, stride=2, padding=3),
    nn.BatchNorm1d(128),
    nn.GELU(),
    nn.Conv1d(128, 128, 5, padding=2),
    nn.GELU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(128, 5),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

watch = Watch()
total = 0.0
for i, (window, label) in enumerate(loader):
    watch("forward")
    loss = criterion(model(window), label) / ACCUMULATE
    watch("backward")
    loss.backward()
    total += loss.item()
    if (i + 1) % ACCUMULATE == 0:
        watch("optimizer")
        optimizer.step()
        optimizer.zero_grad()
        print(f"update {(i + 1) // ACCUMULATE}: loss {total:.4f}")
        total = 0.0
    watch.step()
    if i + 1 == 16:
        break
watch.close()
