"""Fits a curve by LBFGS, which calls its closure several times a step."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 4000).unsqueeze(1)
y = torch.sin(2 * x) + 0.1 * torch.randn(x.shape)
model = nn.Sequential(
    nn.Linear(1, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1)
)
optimizer = torch.optim.LBFGS(
    model.parameters(), lr=0.5, max_iter=5, tolerance_grad=0.0, tolerance_change=0.0
)
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss


for _ in range(40):
    optimizer.step(closure)
print(f"40 steps, {calls} calls")
