import hashlib, os, signal, sys, time, torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def make(kind=torch.optim.AdamW, **more):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, kind(model.parameters(), lr=0.01, **more)


model, optimizer = make()


def batch():
    return torch.randn(8, 32), torch.randint(0, 10, (8,))


def step(model=model, optimizer=optimizer):
    x, y = batch()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def digest(*models):
    d = hashlib.sha256()
    for m in models or (model,):
        for p in m.parameters():
            d.update(p.detach().contiguous().numpy().tobytes())
    d.update(torch.get_rng_state().numpy().tobytes())
    return d.hexdigest()[:16]
