"""Lab's first go at DistributedDataParallel: cell-type classifier on two processes with gloo.

Start it once, it starts both ranks itself. Microscopy crops are synthetic.
"""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from instrument_me import Watch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def launch(n):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    procs = []
    for r in range(n):
        env = dict(
            os.environ,
            RANK=str(r),
            WORLD_SIZE=str(n),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        procs.append(subprocess.Popen([sys.executable, os.path.abspath(__file__)], env=env))
    sys.exit(max(p.wait() for p in procs))


def conv(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.GroupNorm(8, o), nn.ReLU())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    y = torch.randint(0, 4, (768,))
    x = torch.randn(768, 3, 48, 48) + y[:, None, None, None] * 0.3
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=24, sampler=sampler, drop_last=True)

    net = nn.Sequential(
        conv(3, 32),
        conv(32, 32),
        conv(32, 64, 2),
        conv(64, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    model = DistributedDataParallel(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()

    watch = Watch()
    for i, (xb, yb) in enumerate(loader):
        watch("forward")
        loss = loss_fn(model(xb), yb)
        watch("backward")
        opt.zero_grad()
        loss.backward()
        watch("optimizer")
        opt.step()
        if rank == 0 and i % 4 == 0:
            print(f"step {i} loss {loss.item():.4f}", flush=True)
        watch.step()
    watch.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        launch(2)
    main()
