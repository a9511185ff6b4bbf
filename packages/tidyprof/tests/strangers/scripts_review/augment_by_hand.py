"""Written by a hobby photographer who sorts his pictures.
Crops, flips, recolours and blurs every picture of a batch himself, then trains a small network."""

import numpy as np
import torch
import torch.nn as nn
from instrument_me import Watch

SIZE, CROP, BATCH = 144, 128, 32

torch.set_num_threads(1)
torch.manual_seed(6)
rng = np.random.default_rng(6)
pictures = rng.integers(0, 256, (128, SIZE, SIZE, 3), dtype=np.uint8)
albums = rng.integers(0, 4, 128)


def augment(picture):
    top, left = rng.integers(0, SIZE - CROP, 2)
    picture = picture[top : top + CROP, left : left + CROP].astype(np.float32) / 255
    if rng.random() < 0.5:
        picture = picture[:, ::-1]
    picture = np.clip((picture - 0.5) * rng.uniform(0.7, 1.3) + 0.5 + rng.uniform(-0.1, 0.1), 0, 1)
    picture = picture ** rng.uniform(0.8, 1.25)
    grey = picture @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    picture = grey[..., None] + rng.uniform(0.6, 1.4) * (picture - grey[..., None])
    padded = np.pad(picture, ((1, 1), (1, 1), (0, 0)), mode="edge")
    blurred = sum(padded[i : i + CROP, j : j + CROP] for i in range(3) for j in range(3)) / 9
    picture = picture + rng.uniform(-0.3, 0.6) * (blurred - picture)
    picture = picture + rng.normal(0, 0.02, picture.shape)
    return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1), dtype=np.float32))


model = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=4, padding=2),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

watch = Watch()
for step in range(15):
    chosen = rng.choice(len(pictures), BATCH, replace=False)
    x = torch.stack([augment(pictures[i]) for i in chosen])
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    y = torch.from_numpy(albums[chosen])
    watch("forward")
    loss = nn.functional.cross_entropy(model(x), y)
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    if step % 5 == 0:
        print(step, float(loss))
    watch.step()
watch.close()
