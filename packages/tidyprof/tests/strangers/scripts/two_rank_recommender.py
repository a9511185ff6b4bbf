"""Start-up building a recommender: two-tower factorisation on two gloo processes, gradients
averaged by hand.

Clicks are random; run the file, it brings up both ranks.
"""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from instrument_me import Watch
from torch import nn

USERS, ITEMS, DIM, BATCH, STEPS = 60_000, 90_000, 64, 1024, 14


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, DIM), nn.Embedding(ITEMS, DIM)
        self.head = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, u, i):
        return self.head(torch.cat([self.user(u), self.item(i)], 1)).squeeze(1)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
        param.grad /= size


def train():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Towers()
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    bce = nn.BCEWithLogitsLoss()
    gen = torch.Generator().manual_seed(100 + rank)
    watch = Watch()
    for step in range(STEPS):
        u = torch.randint(USERS, (BATCH,), generator=gen)
        i = torch.randint(ITEMS, (BATCH,), generator=gen)
        click = torch.rand(BATCH, generator=gen).round()
        watch("forward")
        loss = bce(model(u, i), click)
        watch("backward")
        opt.zero_grad()
        loss.backward()
        watch("sync")
        average_gradients(model)
        watch("optimizer")
        opt.step()
        if rank == 0 and step % 5 == 0:
            print("step", step, "loss", round(loss.item(), 4), flush=True)
        watch.step()
    watch.close()
    dist.destroy_process_group()


def spawn(world=2):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    base = {
        **os.environ,
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = [
        subprocess.Popen([sys.executable, __file__], env={**base, "RANK": str(r)})
        for r in range(world)
    ]
    return sum(p.wait() != 0 for p in ranks)


if __name__ == "__main__":
    if os.environ.get("RANK") is None:
        sys.exit(spawn())
    train()
