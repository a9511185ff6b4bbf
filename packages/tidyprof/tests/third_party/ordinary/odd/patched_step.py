"""Puts a function of its own in the place of optimizer.step, to count and to skip what is not
finite.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
real_step, taken, skipped = optimizer.step, 0, 0


def careful_step(*args, **kwargs):
    global taken, skipped
    if all(p.grad.isfinite().all() for p in model.parameters()):
        taken += 1
        return real_step(*args, **kwargs)
    skipped += 1
    return None


optimizer.step = careful_step
for step in range(60):
    loss = model(torch.randn(512, 256)).square().mean()
    if step % 20 == 19:
        loss = loss * float("inf")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"taken {taken}, skipped {skipped}")
