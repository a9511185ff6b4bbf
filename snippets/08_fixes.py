"""Train with any combination of fixes, and write the time and loss of each step to a
file.

    python 08_fixes.py plain_1.csv
    python 08_fixes.py fixed_1.csv --fused --channels-last --pin --workers 2

Run each version at least five times with --seed 1 to 5 (plain_1.csv, plain_2.csv, ...).
Then pass the files to 08_compare_two_runs.py. Replace `Pictures` and `build` with your
own code. The script uses a GPU if PyTorch detects one, otherwise the CPU.
"""

import argparse
import csv
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("output")
for switch in ("fused", "channels-last", "compile", "pin", "whole-batches"):
    parser.add_argument(f"--{switch}", action="store_true")
for name, default in {
    "workers": 0,
    "batch-size": 64,
    "steps": 30,
    "warmup": 5,
    "seed": 1,
}.items():
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
layout = torch.channels_last if options.channels_last else torch.contiguous_format


def augment(images):
    """Convert uint8 [N, 3, H, W] to float in 0..1, and randomly flip and brighten each
    image.
    """
    images = images.float() / 255
    flips = torch.rand(len(images), device=images.device) < 0.5
    images = torch.where(flips[:, None, None, None], images.flip(-1), images)
    factors = torch.empty(len(images), 1, 1, 1, device=images.device).uniform_(0.8, 1.2)
    return (images * factors).clamp(0, 1)


class Pictures(Dataset):
    """Synthetic images of ten classes. With --whole-batches, the dataset doesn't
    transform the images.
    """

    def __init__(self, count=5000):
        noise = torch.Generator().manual_seed(1)
        self.labels = torch.arange(count) % 10
        self.images = torch.randint(
            100, (count, 3, 32, 32), dtype=torch.uint8, generator=noise
        )
        self.images += (self.labels * 15)[:, None, None, None].to(torch.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        image = self.images[place]
        return image if options.whole_batches else augment(image[None])[0], self.labels[
            place
        ]


def build():
    """Return the model, whose weights depend only on the seed, and its optimizer."""
    torch.manual_seed(options.seed)
    layers, channels = [], 3
    for wider in (32, 64, 128):
        layers += [
            nn.Conv2d(channels, wider, 3, stride=2, padding=1),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
        ]
        channels = wider
    model = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)
    )
    model = model.to(device, memory_format=layout)
    optimizer = torch.optim.Adam(
        model.parameters(), fused=True if options.fused else None
    )
    return (torch.compile(model) if options.compile else model), optimizer


def main():
    """Train the model and write one row per step after the warmup."""
    model, optimizer = build()
    data = {
        "shuffle": True,
        "drop_last": True,
        "num_workers": options.workers,
        "pin_memory": options.pin,
    }
    loader = DataLoader(
        Pictures(), options.batch_size, persistent_workers=options.workers > 0, **data
    )
    with open(options.output, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["seconds", "loss"])
        done = 0
        while done < options.steps:
            begin = time.perf_counter()
            for images, labels in loader:
                # non_blocking has an effect only if memory is pinned. The host then
                # doesn't wait for the copy.
                images, labels = (
                    part.to(device, non_blocking=options.pin)
                    for part in (images, labels)
                )
                images = augment(images) if options.whole_batches else images
                loss = nn.functional.cross_entropy(
                    model(images.contiguous(memory_format=layout)), labels
                )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                # Waits for the device, so the step ends here
                seen = loss.item()
                now, done = time.perf_counter(), done + 1
                if done > options.warmup:
                    rows.writerow([now - begin, seen])
                begin = now
                if done == options.steps:
                    break


if __name__ == "__main__":
    main()
