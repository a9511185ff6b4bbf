"""Denoising diffusion of made-up rings with a small U-Net."""

import argparse
import colorsys
import copy
import math
import tempfile
from pathlib import Path

import torch
from torch import nn

STEPS = 200


def rings(count, device):
    y, x = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
    centre, radius = torch.rand(count, 2, 1, 1) - 0.5, 0.2 + 0.4 * torch.rand(count, 1, 1)
    distance = ((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2).sqrt()
    return (2 * torch.exp(-(((distance - radius) / 0.08) ** 2)) - 1).unsqueeze(1).to(device)


def embedding(t, width):
    frequencies = torch.exp(
        -math.log(1e4) * torch.arange(width // 2, device=t.device) / (width // 2)
    )
    angles = t[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


class Residual(nn.Module):
    def __init__(self, inside, outside, time):
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, padding=1)
        )
        self.time = nn.Linear(time, outside)
        self.second = nn.Sequential(
            nn.GroupNorm(8, outside), nn.SiLU(), nn.Conv2d(outside, outside, 3, padding=1)
        )
        self.short = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        return self.second(self.first(x) + self.time(t)[:, :, None, None]) + self.short(x)


class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(
            nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width)
        )
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.down1, self.down2 = (
            Residual(width, width, 2 * width),
            Residual(width, 2 * width, 2 * width),
        )
        self.middle = Residual(2 * width, 2 * width, 2 * width)
        self.up2, self.up1 = (
            Residual(4 * width, width, 2 * width),
            Residual(2 * width, width, 2 * width),
        )
        self.head = nn.Sequential(
            nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1)
        )

    def forward(self, x, t):
        t = self.time(embedding(t, self.width))
        one = self.down1(self.stem(x), t)
        two = self.down2(nn.functional.avg_pool2d(one, 2), t)
        low = self.middle(nn.functional.avg_pool2d(two, 2), t)
        high = self.up2(torch.cat([nn.functional.interpolate(low, scale_factor=2), two], 1), t)
        return self.head(
            self.up1(torch.cat([nn.functional.interpolate(high, scale_factor=2), one], 1), t)
        )


def write_sheet(pictures, path, zoom=2):
    """A contact sheet in false colours as a portable pixmap in text, which every viewer can show."""
    side = zoom * pictures.shape[-1]
    rows = [f"P3 {len(pictures) * side} {side} 255"]
    values = pictures.clamp(-1, 1).add(1).div(2).squeeze(1).tolist()
    for y in range(side):
        row = []
        for picture in values:
            for x in range(side):
                value = picture[y // zoom][x // zoom]
                colour = colorsys.hsv_to_rgb(0.7 * (1 - value), 0.8, 0.3 + 0.7 * value)
                row.append(" ".join(str(round(255 * part)) for part in colour))
        rows.append(" ".join(row))
    path.write_text("\n".join(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--watch", action="store_true", help="write what is noised and what is predicted each step"
    )
    args = parser.parse_args()
    torch.manual_seed(11)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    betas = torch.linspace(1e-4, 0.04, STEPS, device=device)
    kept = (1 - betas).cumprod(0)
    model = UNet().to(device)
    mean = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as place:
        for step in range(120):
            clean = rings(8, device)
            t = torch.randint(STEPS, (len(clean),), device=device)
            noise = torch.randn_like(clean)
            level = kept[t].view(-1, 1, 1, 1)
            noisy = level.sqrt() * clean + (1 - level).sqrt() * noise
            predicted = model(noisy, t.float())
            loss = nn.functional.mse_loss(predicted, noise)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for slow, new in zip(mean.parameters(), model.parameters(), strict=True):
                    slow.lerp_(new, 0.01)
            if args.watch:
                restored = (noisy - (1 - level).sqrt() * predicted.detach()) / level.sqrt()
                for name, pictures in (("clean", clean), ("noisy", noisy), ("restored", restored)):
                    write_sheet(pictures, Path(place) / f"{name}_{step:04d}.ppm")
            if step % 10 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
