"""Has torch.profiler around its loop already, and writes its own table."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
tables = []
with profile(
    activities=activities,
    schedule=schedule(wait=2, warmup=1, active=40, repeat=1),
    on_trace_ready=lambda own: tables.append(own.key_averages()),
) as own:
    for _ in range(60):
        loss = model(torch.randn(256, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        own.step()
print(
    f"{len(tables)} table, linear {max(row.count for row in tables[0] if row.key == 'aten::linear')} times"
)
