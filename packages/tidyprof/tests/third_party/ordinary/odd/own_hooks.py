"""Has hooks of its own: before and after each step of its optimizer, of every optimizer, and on a
module.
"""

from collections import Counter

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

torch.manual_seed(0)
calls = Counter()
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
optimizer.register_step_pre_hook(lambda *_: calls.update(["before"]))
optimizer.register_step_post_hook(lambda *_: calls.update(["after"]))
everywhere = register_optimizer_step_post_hook(lambda *_: calls.update(["everywhere"]))
model.register_forward_hook(lambda *_: calls.update(["forward"]))
for step in range(60):
    loss = model(torch.randn(512, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 29:
        everywhere.remove()
print(" ".join(f"{name} {count}" for name, count in sorted(calls.items())))
