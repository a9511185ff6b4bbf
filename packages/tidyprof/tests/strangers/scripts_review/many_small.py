"""Written by a student who tries an optimizer of his own. Every neuron has its own momentum and its
own step size, and a neuron that has grown too long is shortened.
"""

import torch
import torch.nn as nn
from instrument_me import Watch

torch.set_num_threads(1)
torch.manual_seed(19)


class PerNeuron:
    def __init__(self, parameters, lr=0.01, beta=0.9, longest=3.0):
        self.parameters = list(parameters)
        self.lr, self.beta, self.longest = lr, beta, longest
        self.momentum = [[torch.zeros_like(row) for row in p] for p in self.parameters]
        self.scale = [[torch.zeros(()) for _ in p] for p in self.parameters]

    @torch.no_grad()
    def step(self):
        for p, momenta, scales in zip(self.parameters, self.momentum, self.scale, strict=True):
            for row, grad, momentum, scale in zip(
                p.unbind(), p.grad.unbind(), momenta, scales, strict=True
            ):
                momentum.mul_(self.beta).add_(grad, alpha=1 - self.beta)
                scale.mul_(0.99).add_(grad.norm(), alpha=0.01)
                row.sub_(momentum / (scale + 1e-6) * self.lr)
                length = row.norm() + 1e-6
                row.mul_((self.longest / length).clamp(max=1.0))


model = nn.Sequential(
    nn.Linear(256, 190, bias=False),
    nn.ReLU(),
    nn.Linear(190, 190, bias=False),
    nn.ReLU(),
    nn.Linear(190, 10, bias=False),
)
optimizer = PerNeuron(model.parameters())
x = torch.randn(8192, 256)
y = x[:, :10].argmax(1)

watch = Watch()
for step in range(20):
    rows = torch.randint(0, len(x), (1400,))
    watch("forward")
    loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
    watch("backward")
    model.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    if step % 5 == 0:
        print(step, loss.item())
    watch.step()
watch.close()
