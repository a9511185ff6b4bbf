"""Segment point clouds of made-up rooms with accelerate, four batches for each step."""

import argparse
import math
import random

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

PARTS = 5


def room(rng):
    """Between 300 and 500 points, each with its position and the part of the room it is on."""
    points = []
    for _ in range(rng.randrange(300, 500)):
        part = rng.randrange(PARTS)
        x, y = rng.random(), rng.random()
        position = [
            (x, y, 0.0),
            (x, y, 1.0),
            (x, 0.0, y),
            (0.0, x, y),
            (0.5 + x / 9, 0.5 + y / 9, 0.3),
        ][part]
        points.append(([c + rng.gauss(0, 0.03) for c in position], part))
    return points


class Rooms(Dataset):
    def __init__(self, count):
        rng = random.Random(8)
        self.rooms = [room(rng) for _ in range(count)]

    def __len__(self):
        return len(self.rooms)

    def __getitem__(self, index):
        return self.rooms[index]


class AsTensors(Dataset):
    """The same rooms, turned and given their densities once."""

    def __init__(self, rooms):
        self.rows = [collate([room]) for room in rooms]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def turned(points, angle):
    c, s = math.cos(angle), math.sin(angle)
    return [(x * c - y * s, x * s + y * c, z) for x, y, z in points]


def density(points, radius=0.1):
    """How many of the neighbours in the order of x are within the radius."""
    order = sorted(range(len(points)), key=lambda n: points[n][0])
    counts = [0] * len(points)
    for place, n in enumerate(order):
        for other in order[place + 1 : place + 49]:
            if math.dist(points[n], points[other]) < radius:
                counts[n] += 1
                counts[other] += 1
    return counts


def collate(rooms):
    longest = 512
    features, labels = [], []
    for one in rooms:
        points = turned([position for position, _ in one], random.random() * 0.2)
        rows = [[*point, count / 8] for point, count in zip(points, density(points), strict=True)]
        features.append(rows + [[0.0] * 4] * (longest - len(rows)))
        labels.append([part for _, part in one] + [-100] * (longest - len(rows)))
    return torch.tensor(features), torch.tensor(labels)


def joined(rows):
    return torch.cat([row[0] for row in rows]), torch.cat([row[1] for row in rows])


class PointNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.local = nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.deep = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2 * width)
        )
        self.head = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, PARTS))

    def forward(self, points):
        local = self.local(points)
        whole = self.deep(local).amax(1, keepdim=True).expand(-1, points.shape[1], -1)
        return self.head(torch.cat([local, whole], -1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--prepared", action="store_true", help="make the features of all rooms once, at the start"
    )
    args = parser.parse_args()
    set_seed(8)
    accelerator = Accelerator(gradient_accumulation_steps=4)
    rooms = Rooms(256)
    if args.prepared:
        loader = DataLoader(AsTensors(rooms), batch_size=8, shuffle=True, collate_fn=joined)
    else:
        loader = DataLoader(rooms, batch_size=8, shuffle=True, collate_fn=collate)
    model = PointNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=80)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for epoch in range(10):
        total = 0.0
        for points, labels in loader:
            with accelerator.accumulate(model):
                logits = model(points)
                loss = nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels.flatten(), ignore_index=-100
                )
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            total += loss.item()
        accelerator.print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
