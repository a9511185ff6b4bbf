"""Written by a physicist who distrusts binary formats. Fits a field with a small network and writes
down what happened: weights as JSON, fields as npy, a text log.
"""

import json
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from instrument_me import Watch

torch.set_num_threads(1)
torch.manual_seed(31)


def put(path, text, mode="w"):
    with open(path, mode) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def record(folder, step, model, field, loss):
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    put(os.path.join(folder, "weights.json"), json.dumps({"step": step, "weights": weights}))
    with open(os.path.join(folder, f"field_{step % 3}.npy"), "wb") as file:
        np.save(file, field.numpy())
        file.flush()
        os.fsync(file.fileno())
    lines = [
        f"{step:6d} {loss:12.6f} {name:12s} {np.ptp(np.array(value)):10.5f}\n"
        for name, value in weights.items()
    ]
    put(os.path.join(folder, "log.txt"), "".join(lines), "a")


points = torch.rand(4096, 2) * 2 - 1
truth = torch.sin(4 * points[:, :1]) * torch.cos(3 * points[:, 1:])
model = nn.Sequential(
    nn.Linear(2, 224), nn.Tanh(), nn.Linear(224, 224), nn.Tanh(), nn.Linear(224, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

with tempfile.TemporaryDirectory() as folder:
    watch = Watch()
    for step in range(15):
        watch("forward")
        field = model(points)
        loss = (field - truth).square().mean()
        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        watch("optimizer")
        optimizer.step()
        watch("record")
        record(folder, step, model, field.detach(), loss.item())
        if step % 5 == 0:
            print(step, loss.item())
        watch.step()
    watch.close()
