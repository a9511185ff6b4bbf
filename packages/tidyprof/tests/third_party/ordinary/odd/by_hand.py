"""Trains without an optimizer: the weights are changed by hand."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
for _ in range(60):
    loss = model(torch.randn(512, 256)).square().mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad
print("60 steps by hand")
