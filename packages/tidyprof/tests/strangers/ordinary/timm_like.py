"""Image classification in the manner of timm's train.py: mixup, EMA of the weights, cosine
schedule, AverageMeter.
"""

import argparse
import copy
import io
import math
import random
import time

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


class AverageMeter:
    """The latest value and the mean."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def photo(rng, label):
    """A JPEG file of 640 by 480 pixels, as bytes."""
    y, x = np.mgrid[0:480, 0:640]
    wave = np.sin(x / (8 + 4 * label) + rng.random() * 6) * np.cos(y / (40 - 3 * label))
    picture = np.stack([wave * 90 + 128, 128 - wave * 60, 90 + wave * 30], -1) + rng.normal(
        0, 12, (480, 640, 3)
    )
    file = io.BytesIO()
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


class Photos(Dataset):
    """Each file four times an epoch, cut out and coloured anew."""

    def __init__(self, count, size=56):
        rng = np.random.default_rng(2)
        self.size = size
        self.labels = [n % CLASSES for n in range(count)]
        self.files = [photo(rng, label) for label in self.labels]

    def __len__(self):
        return 4 * len(self.files)

    def __getitem__(self, index):
        index %= len(self.files)
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        side = random.randrange(240, 480)
        left, top = random.randrange(640 - side), random.randrange(480 - side + 1)
        picture = picture.resize(
            (self.size, self.size), Image.BICUBIC, (left, top, left + side, top + side)
        )
        if random.random() < 0.5:
            picture = picture.transpose(Image.FLIP_LEFT_RIGHT)
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            picture = enhance(picture).enhance(0.7 + 0.6 * random.random())
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255, self.labels[
            index
        ]


class Cached(Dataset):
    """Pictures that were decoded once and are only flipped."""

    def __init__(self, photos):
        self.items = [photos[n] for n in range(len(photos))]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        picture, label = self.items[index]
        return (picture.flip(-1) if random.random() < 0.5 else picture), label


class ModelEma(nn.Module):
    def __init__(self, model, decay=0.99):
        super().__init__()
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mean, new in zip(
            self.module.state_dict().values(), model.state_dict().values(), strict=True
        ):
            mean.copy_(self.decay * mean + (1 - self.decay) * new)


def convnet(width=32):
    layers, inside = [], 3
    for outside, stride in (
        (width, 2),
        (width, 1),
        (2 * width, 2),
        (2 * width, 1),
        (4 * width, 2),
        (4 * width, 1),
    ):
        layers += [
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.SiLU(),
        ]
        inside = outside
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(inside, CLASSES)
    )


def mixup(pictures, labels, alpha=0.2):
    share = np.random.beta(alpha, alpha)
    targets = nn.functional.one_hot(labels, CLASSES).float() * 0.9 + 0.1 / CLASSES
    return share * pictures + (1 - share) * pictures.flip(0), share * targets + (
        1 - share
    ) * targets.flip(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", action="store_true", help="decode all photos once")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    random.seed(2)
    np.random.seed(2)
    torch.manual_seed(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    photos = Photos(120)
    loader = DataLoader(
        Cached(photos) if args.cache else photos,
        32,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
    )
    model = convnet().to(device)
    ema = ModelEma(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True
    )
    updates = 0
    for epoch in range(args.epochs):
        losses, batch_time = AverageMeter(), AverageMeter()
        model.train()
        end = time.time()
        for n, (pictures, labels) in enumerate(loader):
            pictures, labels = pictures.to(device), labels.to(device)
            pictures, targets = mixup(pictures, labels)
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * (1 + math.cos(math.pi * updates / (args.epochs * len(loader))))
            loss = nn.functional.cross_entropy(model(pictures), targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            ema.update(model)
            updates += 1
            losses.update(loss.item(), pictures.size(0))
            batch_time.update(time.time() - end)
            end = time.time()
            if n % 5 == 0:
                print(
                    f"Train: {epoch} [{n:>4d}/{len(loader)}]  Loss: {losses.val:#.3g} ({losses.avg:#.3g})  "
                    f"Time: {batch_time.val:.3f}s ({batch_time.avg:.3f}s)  LR: {optimizer.param_groups[0]['lr']:.3e}"
                )


if __name__ == "__main__":
    main()
