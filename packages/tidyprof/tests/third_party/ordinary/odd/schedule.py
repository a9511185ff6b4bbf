"""Lowers its learning rate by a scheduler, which wraps optimizer.step."""

import warnings

import torch
from torch import nn

warnings.simplefilter(
    "error"
)  # a scheduler warns where it thinks that optimizer.step was not called
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.1)
for _ in range(60):
    loss = model(torch.randn(512, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
print(f"rate {schedule.get_last_lr()[0]:.4g}")
