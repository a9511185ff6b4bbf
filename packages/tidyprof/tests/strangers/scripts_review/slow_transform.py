"""Written by a biologist who classifies microscope pictures. A Dataset with a stain normalisation
of her own for each picture, a DataLoader and a small network.
"""

import math

import torch
import torch.nn as nn
from instrument_me import Watch
from torch.utils.data import DataLoader, Dataset


class StainNormalise:
    """Brings every pixel to a common optical density, then smooths the histogram of the picture."""

    def __init__(self, reference=0.35):
        self.reference = reference

    def __call__(self, image):
        height, width = len(image), len(image[0])
        density = [[-math.log((pixel + 1) / 256) for pixel in row] for row in image]
        mean = sum(map(sum, density)) / (height * width)
        scaled = [[value * self.reference / mean for value in row] for row in density]
        result = []
        for y in range(height):
            above, here, below = scaled[max(y - 1, 0)], scaled[y], scaled[min(y + 1, height - 1)]
            result.append([0.25 * above[x] + 0.5 * here[x] + 0.25 * below[x] for x in range(width)])
        return torch.tensor(result)[None]


class Pictures(Dataset):
    def __init__(self, count, size=80, transform=None):
        generator = torch.Generator().manual_seed(4)
        self.labels = torch.randint(0, 3, (count,), generator=generator)
        noise = torch.randint(0, 120, (count, size, size), generator=generator)
        self.images = (noise + 45 * self.labels[:, None, None]).to(torch.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index].tolist()), self.labels[index]


torch.set_num_threads(1)
torch.manual_seed(4)
loader = DataLoader(Pictures(16 * 32, transform=StainNormalise()), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2, padding=2),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 3),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

watch = Watch()
for step, (x, y) in enumerate(loader):
    watch("forward")
    loss = criterion(model(x), y)
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    if step % 5 == 0:
        print(f"{step:3d} {loss.item():.4f}")
    watch.step()
watch.close()
