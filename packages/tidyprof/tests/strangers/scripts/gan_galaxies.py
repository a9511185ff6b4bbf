"""PhD student in astronomy: a DCGAN that dreams up small galaxy stamps, alternating discriminator
and generator.

The "survey" is a set of elliptical Gaussians with noise.
"""

import torch
from instrument_me import Watch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1234)

nz, ngf, ndf, batch_size, n_iter = 64, 24, 24, 32, 16


def make_survey(n):
    grid = torch.linspace(-1, 1, 32)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    a, b = 0.1 + 0.4 * torch.rand(n, 1, 1), 0.1 + 0.2 * torch.rand(n, 1, 1)
    theta = 3.14159 * torch.rand(n, 1, 1)
    u, v = x * theta.cos() + y * theta.sin(), -x * theta.sin() + y * theta.cos()
    return (
        2 * torch.exp(-((u / a) ** 2) - (v / b) ** 2) - 1 + 0.05 * torch.randn(n, 32, 32)
    ).unsqueeze(1)


def up(i, o):
    return nn.Sequential(
        nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)
    )


def down(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)
    )


gen = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 4),
    nn.ReLU(True),
    up(ngf * 4, ngf * 2),
    up(ngf * 2, ngf),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1),
    nn.Tanh(),
)
disc = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1),
    nn.LeakyReLU(0.2, True),
    down(ndf, ndf * 2),
    down(ndf * 2, ndf * 4),
    nn.Conv2d(ndf * 4, 1, 4, 1, 0),
    nn.Flatten(0),
)
criterion = nn.BCEWithLogitsLoss()
opt_d = torch.optim.Adam(disc.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4, betas=(0.5, 0.999))
survey = make_survey(1024)
ones, zeros = torch.ones(batch_size), torch.zeros(batch_size)

watch = Watch()
for i in range(n_iter):
    real = survey[torch.randint(len(survey), (batch_size,))]

    watch("discriminator")
    fake = gen(torch.randn(batch_size, nz, 1, 1))
    opt_d.zero_grad()
    loss_d = criterion(disc(real), ones) + criterion(disc(fake.detach()), zeros)
    loss_d.backward()
    opt_d.step()

    watch("generator")
    opt_g.zero_grad()
    loss_g = criterion(disc(fake), ones)
    loss_g.backward()
    opt_g.step()

    if i % 4 == 0:
        print(f"[{i}/{n_iter}] Loss_D: {loss_d.item():.4f} Loss_G: {loss_g.item():.4f}")
    watch.step()
watch.close()
