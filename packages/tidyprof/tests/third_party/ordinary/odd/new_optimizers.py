"""Makes a new optimizer at the start of each epoch of ten steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
for epoch in range(6):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 / (epoch + 1))
    for _ in range(10):
        loss = model(torch.randn(512, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{epoch + 1} optimizers")
