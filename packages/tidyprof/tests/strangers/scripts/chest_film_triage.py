"""A radiologist who codes: small CNN that sorts chest films, with his own random rotation, crop and
contrast.

Films are made-up; everything in memory as 8-bit arrays.
"""

import numpy as np
import torch
from instrument_me import Watch
from torch import nn

rng = np.random.default_rng(5)
torch.manual_seed(5)
torch.set_num_threads(1)

SIZE = 128
films = rng.integers(0, 255, (200, SIZE, SIZE), dtype=np.uint8)
diagnosis = rng.integers(0, 3, 200)


def rotate(img, degrees):
    # bilinear, around the centre
    a = np.deg2rad(degrees)
    yy, xx = np.mgrid[:SIZE, :SIZE] - SIZE / 2
    sx = np.cos(a) * xx - np.sin(a) * yy + SIZE / 2
    sy = np.sin(a) * xx + np.cos(a) * yy + SIZE / 2
    x0, y0 = (
        np.clip(np.floor(sx).astype(int), 0, SIZE - 2),
        np.clip(np.floor(sy).astype(int), 0, SIZE - 2),
    )
    fx, fy = np.clip(sx - x0, 0, 1), np.clip(sy - y0, 0, 1)
    top = img[y0, x0] * (1 - fx) + img[y0, x0 + 1] * fx
    bottom = img[y0 + 1, x0] * (1 - fx) + img[y0 + 1, x0 + 1] * fx
    return top * (1 - fy) + bottom * fy


def equalize(img):
    hist, edges = np.histogram(img, bins=128)
    cdf = hist.cumsum() / img.size
    return np.interp(img, edges[:-1], cdf)


def make_batch(n):
    xs, ys = [], []
    for i in rng.integers(0, len(films), n):
        img = rotate(films[i].astype(np.float64), rng.uniform(-15, 15))
        if rng.random() < 0.5:
            img = img[:, ::-1]
        img = equalize(img) * rng.uniform(0.8, 1.2) + rng.normal(0, 0.02, img.shape)
        top, left = rng.integers(0, SIZE - 112, 2)
        xs.append(img[top : top + 112, left : left + 112])
        ys.append(diagnosis[i])
    return torch.from_numpy(np.stack(xs)).float().unsqueeze(1), torch.as_tensor(np.array(ys))


net = nn.Sequential(
    nn.Conv2d(1, 16, 7, stride=4), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
    nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3),
)  # fmt: skip
sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
ce = nn.CrossEntropyLoss()

watch = Watch()
for k in range(20):
    x, y = make_batch(24)
    watch("training")
    sgd.zero_grad()
    out = net(x)
    loss = ce(out, y)
    loss.backward()
    sgd.step()
    print("batch", k, "loss", round(float(loss), 3))
    watch.step()
watch.close()
