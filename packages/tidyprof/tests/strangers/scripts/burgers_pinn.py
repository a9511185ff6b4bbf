"""A numerical-analysis postdoc: physics-informed network for the viscous Burgers equation u_t + u
u_x = nu u_xx.

Adam on residual, initial and boundary points drawn anew in each iteration.
"""

import numpy as np
import torch
from instrument_me import Watch

torch.manual_seed(0)
torch.set_num_threads(1)

nu = 0.01 / np.pi
N_f, N_b = 3000, 200
layers = [2, 100, 100, 100, 100, 1]


class PINN(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.linears = torch.nn.ModuleList(
            torch.nn.Linear(layers[i], layers[i + 1]) for i in range(len(layers) - 1)
        )
        for lin in self.linears:
            torch.nn.init.xavier_normal_(lin.weight)
            torch.nn.init.zeros_(lin.bias)

    def forward(self, x, t):
        z = torch.cat([x, t], dim=1)
        for lin in self.linears[:-1]:
            z = torch.tanh(lin(z))
        return self.linears[-1](z)


def residual(net, x, t):
    x.requires_grad_(True)
    t.requires_grad_(True)
    u = net(x, t)
    u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), create_graph=True)
    u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
    return u_t + u * u_x - nu * u_xx


net = PINN(layers)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
watch = Watch()
for epoch in range(15):
    xf, tf = 2 * torch.rand(N_f, 1) - 1, torch.rand(N_f, 1)
    x0 = 2 * torch.rand(N_b, 1) - 1
    xb, tb = torch.sign(torch.rand(N_b, 1) - 0.5), torch.rand(N_b, 1)

    watch("residual")
    loss_f = residual(net, xf, tf).pow(2).mean()
    watch("boundary")
    loss_0 = (net(x0, torch.zeros_like(x0)) + torch.sin(np.pi * x0)).pow(2).mean()
    loss_b = net(xb, tb).pow(2).mean()
    loss = loss_f + loss_0 + loss_b
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    if epoch % 5 == 0:
        print(
            f"epoch {epoch}: residual {loss_f.item():.3e} initial {loss_0.item():.3e} boundary {loss_b.item():.3e}"
        )
    watch.step()
watch.close()
