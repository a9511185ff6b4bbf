"""Privacy researcher: federated averaging over a handful of hospitals, all simulated in one
process.

Each round every client trains a copy of the global model on its own records.
"""

import copy
import gc
import random

import torch
import torch.nn.functional as fn
from instrument_me import Watch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)


class Hospital:
    def __init__(self, name, n_patients):
        self.name = name
        self.records = [
            {
                "id": f"{name}-{i}",
                "age": random.randint(20, 90),
                "codes": [random.randint(0, 999) for _ in range(4)],
            }
            for i in range(n_patients)
        ]
        age = torch.tensor([r["age"] for r in self.records], dtype=torch.float)
        codes = torch.tensor([r["codes"] for r in self.records])
        self.x = torch.cat([age[:, None] / 100, fn.one_hot(codes % 32, 32).flatten(1).float()], 1)
        self.y = (age > 55).long()

    def fit(self, model, epochs, batch_size, lr):
        opt = torch.optim.SGD(model.parameters(), lr=lr)
        for _ in range(epochs):
            pick = torch.randint(len(self.x), (batch_size,))
            loss = fn.cross_entropy(model(self.x[pick]), self.y[pick])
            opt.zero_grad()
            loss.backward()
            opt.step()
        return model.state_dict(), len(self.x), loss.item()


def average(states, weights):
    total = sum(weights)
    return {
        k: sum(s[k] * (w / total) for s, w in zip(states, weights, strict=True)) for k in states[0]
    }


clients = [Hospital(n, p) for n, p in [("north", 2000), ("south", 5000), ("harbour", 1500)]]
global_model = nn.Sequential(
    nn.Linear(129, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2)
)

watch = Watch()
for rnd in range(14):
    states, sizes, losses = [], [], []
    watch("clients")
    for client in clients:
        local = copy.deepcopy(global_model)
        state, n, loss = client.fit(local, epochs=4, batch_size=1024, lr=0.05)
        states.append(copy.deepcopy(state))
        sizes.append(n)
        losses.append(loss)
        del local, state
        gc.collect()
    watch("aggregate")
    global_model.load_state_dict(average(states, sizes))
    if rnd % 3 == 0:
        print(
            f"round {rnd}: "
            + ", ".join(f"{c.name} {v:.3f}" for c, v in zip(clients, losses, strict=True))
        )
    watch.step()
watch.close()
