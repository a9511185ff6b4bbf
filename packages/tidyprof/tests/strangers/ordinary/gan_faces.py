"""Two networks and two optimizers: made-up faces by a generator against a discriminator."""

import argparse
import gzip
import tempfile
from pathlib import Path

import torch
from torch import nn

NOISE = 64


def faces(count, device):
    y, x = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
    wide, smile = 0.5 + 0.3 * torch.rand(count, 1, 1), torch.rand(count, 1, 1) - 0.5
    head = ((x / wide) ** 2 + y**2 < 0.8).float()
    eyes = (((x.abs() - 0.25) ** 2 + (y + 0.25) ** 2) < 0.01).float()
    mouth = ((y - 0.4 - smile * x**2).abs() < 0.06).float() * (x.abs() < 0.35)
    return (head - 1.5 * (eyes + mouth)).clamp(-1, 1).unsqueeze(1).to(device)


def generator(width=64):
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, 4 * width, 4), nn.BatchNorm2d(4 * width), nn.ReLU(),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


def discriminator(width=64):
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
        nn.Conv2d(4 * width, 1, 4), nn.Flatten(0),
    )  # fmt: skip


def save(path, **what):
    """All there is, packed, and never half of a file under its name."""
    part = path.with_suffix(".part")
    with gzip.open(part, "wb", compresslevel=1) as file:
        torch.save({name: one.state_dict() for name, one in what.items()}, file)
    part.rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save-each", action="store_true", help="keep a checkpoint of each step")
    args = parser.parse_args()
    torch.manual_seed(50)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    g, d = generator().to(device), discriminator().to(device)
    optimizer_g = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    good, bad = torch.ones(24, device=device), torch.zeros(24, device=device)
    with tempfile.TemporaryDirectory() as place:
        for step in range(70):
            real = faces(24, device)
            fake = g(torch.randn(24, NOISE, 1, 1, device=device))
            optimizer_d.zero_grad()
            loss_d = criterion(d(real), good) + criterion(d(fake.detach()), bad)
            loss_d.backward()
            optimizer_d.step()
            optimizer_g.zero_grad()
            loss_g = criterion(d(fake), good)
            loss_g.backward()
            optimizer_g.step()
            if args.save_each:
                save(
                    Path(place) / f"gan_{step % 4}.pt.gz",
                    g=g,
                    d=d,
                    optimizer_g=optimizer_g,
                    optimizer_d=optimizer_d,
                )
            if step % 10 == 0:
                print(f"[{step}/70] loss_d {loss_d.item():.4f} loss_g {loss_g.item():.4f}")


if __name__ == "__main__":
    main()
