"""Trains in a thread while the main thread waits, as behind a window or a web page."""

import threading

import torch
from torch import nn

done = []


def train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(60):
        loss = model(torch.randn(512, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done.append(step)


thread = threading.Thread(target=train, name="training")
thread.start()
thread.join()
print(f"{len(done)} steps in a thread")
