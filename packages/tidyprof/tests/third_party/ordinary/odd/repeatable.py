"""Prints random numbers of three generators and the hash of the weights: nothing may change them."""

import hashlib
import random

import numpy as np
import torch
from torch import nn

random.seed(1)
np.random.seed(2)
torch.manual_seed(3)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(60):
    batch = torch.randn(128, 128) * random.random() + float(np.random.rand())
    loss = nn.functional.cross_entropy(model(batch), torch.randint(10, (128,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
print(random.random(), np.random.rand(), torch.rand(()).item())
print(hashlib.sha256(weights).hexdigest())
