"""Written by a chemist who did not want to install a graph library.
Message passing on a random graph with index_add and scatter_reduce, node classification."""

import torch
import torch.nn as nn
from instrument_me import Watch

NODES, EDGES, FEATURES, HIDDEN, CLASSES = 8000, 60000, 32, 64, 7


class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU())
        self.update = nn.Linear(3 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, source, target, degree):
        message = self.message(torch.cat([x[source], x[target]], dim=1))
        mean = torch.zeros_like(x).index_add(0, target, message) / degree
        index = target[:, None].expand_as(message)
        largest = torch.zeros_like(x).scatter_reduce(0, index, message, "amax")
        return x + self.norm(nn.functional.silu(self.update(torch.cat([x, mean, largest], dim=1))))


class Network(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.inlet = nn.Linear(FEATURES, HIDDEN)
        self.layers = nn.ModuleList(Convolution(HIDDEN) for _ in range(layers))
        self.outlet = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x, source, target, degree):
        x = self.inlet(x)
        for layer in self.layers:
            x = layer(x, source, target, degree)
        return self.outlet(x)


torch.set_num_threads(1)
torch.manual_seed(3)
x = torch.randn(NODES, FEATURES)
source, target = torch.randint(0, NODES, (2, EDGES))
degree = torch.bincount(target, minlength=NODES).clamp(min=1)[:, None].float()
y = (x[:, :CLASSES] + 0.3 * torch.randn(NODES, CLASSES)).argmax(1)
train = torch.rand(NODES) < 0.7

model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
watch = Watch()
for epoch in range(14):
    watch("forward")
    out = model(x, source, target, degree)
    loss = nn.functional.cross_entropy(out[train], y[train])
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    if epoch % 4 == 0:
        accuracy = (out[~train].argmax(1) == y[~train]).float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.3f} accuracy {accuracy:.3f}")
    watch.step()
watch.close()
