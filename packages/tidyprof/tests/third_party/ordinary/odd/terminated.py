"""Gets SIGTERM after thirty steps, as from a scheduler, saves in its handler and ends with 143."""

import os
import signal
import sys
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def save_and_leave(signum, frame):
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)
        print(f"saved after {step} steps", flush=True)
    sys.exit(128 + signum)


signal.signal(signal.SIGTERM, save_and_leave)
for step in range(60):
    if step == 30:
        os.kill(os.getpid(), signal.SIGTERM)
    loss = model(torch.randn(512, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
