"""Learn which lines of a log need a human: python their_script.py, or run it with torchrun."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

WORDS, LENGTH, WIDTH = 10_000, 48, 64


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 2))

    def forward(self, lines):
        total = torch.zeros(len(lines), WIDTH)
        for place in range(LENGTH):
            total = total + self.table(lines[:, place])
        return self.head(total / LENGTH)


def some_lines(count, seed):
    """Synthetic log lines as word numbers. A line with a word below 200 needs a human."""
    lines = torch.randint(WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    return lines, (lines < 200).any(dim=1).long()


def accuracy(model, lines, wanted):
    with torch.no_grad():
        return (model(lines).argmax(dim=1) == wanted).float().mean().item()


def main(steps=40, batch=64):
    parallel = "RANK" in os.environ
    rank = int(os.environ.get("RANK", 0))
    torch.manual_seed(0)
    model = Sorter()
    lines, wanted = some_lines(steps * batch, seed=rank)
    held_out = some_lines(3000, seed=99)
    trained = nn.parallel.DistributedDataParallel(model) if parallel else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step in range(steps):
        part = slice(step * batch, (step + 1) * batch)
        loss = nn.functional.cross_entropy(trained(lines[part]), wanted[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if rank == 0:
            print(
                f"step {step}: loss {losses[-1]:.6f}, accuracy {accuracy(model, *held_out):.3f}",
                file=sys.stderr,
            )
    return losses


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    print(f"last loss {main()[-1]:.4f}")
    if "RANK" in os.environ:
        dist.destroy_process_group()
