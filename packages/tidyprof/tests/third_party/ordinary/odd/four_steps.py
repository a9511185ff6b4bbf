"""Is over after four steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(256, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.randn(512, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("4 steps")
