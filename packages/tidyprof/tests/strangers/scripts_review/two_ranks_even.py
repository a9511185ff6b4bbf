"""Written by a doctoral student who uses both cores of her laptop. Two processes train one
convolution network with DistributedDataParallel on halves of the same pictures.
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
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
        nn.GroupNorm(8, outputs),
        nn.ReLU(inplace=True),
    )


def train():
    torch.set_num_threads(1)
    torch.manual_seed(29)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pictures = torch.randn(14 * 96, 3, 48, 48)
    labels = torch.randint(0, 10, (len(pictures),))
    data = TensorDataset(pictures, labels)
    loader = DataLoader(data, batch_size=48, sampler=DistributedSampler(data))
    net = nn.Sequential(
        block(3, 32, 1),
        block(32, 48, 2),
        block(48, 48, 1),
        block(48, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    model = DistributedDataParallel(nn.Sequential(net, nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    watch = Watch()
    for step, (x, y) in enumerate(loader):
        watch("forward")
        loss = criterion(model(x), y)
        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        watch("optimizer")
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"{step} {loss.item():.4f}", flush=True)
        watch.step()
    watch.close()
    dist.barrier()
    dist.destroy_process_group()


def launch(world=2):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    common = {
        **os.environ,
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = [
        subprocess.Popen([sys.executable, __file__], env={**common, "RANK": str(r)})
        for r in range(world)
    ]
    try:
        return max(abs(process.wait(100)) for process in ranks)
    finally:
        for process in ranks:
            process.kill()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        raise SystemExit(launch())
