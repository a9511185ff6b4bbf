"""A parent and a child made by fork, and both train."""

import multiprocessing

import torch
from torch import nn

torch.set_num_threads(1)  # a pool of threads does not survive a fork


def train(who, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(40):
        loss = model(torch.randn(256, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{who}: 40 steps", flush=True)


train("parent before", 0)
child = multiprocessing.get_context("fork").Process(target=train, args=("child", 1))
child.start()
child.join()
train("parent after", 2)
print(f"child ended with {child.exitcode}")
