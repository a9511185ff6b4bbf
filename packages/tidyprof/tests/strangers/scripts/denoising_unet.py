"""Somebody who likes Lightning but had no permission to install it: a diffusion U-Net as a module
with hooks.

Predicts the noise on 32x32 textures; validation loss is computed every eight steps.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as fn
from instrument_me import Watch
from torch.utils.data import DataLoader, TensorDataset, random_split


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, c_time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, c_in), nn.GroupNorm(8, c_out)
        self.conv1, self.conv2 = (
            nn.Conv2d(c_in, c_out, 3, padding=1),
            nn.Conv2d(c_out, c_out, 3, padding=1),
        )
        self.time = nn.Linear(c_time, c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(fn.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.conv2(fn.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, c=32, c_time=64):
        super().__init__()
        self.c_time = c_time
        self.stem = nn.Conv2d(1, c, 3, padding=1)
        self.d1, self.d2, self.mid = (
            ResBlock(c, c, c_time),
            ResBlock(c, 2 * c, c_time),
            ResBlock(2 * c, 2 * c, c_time),
        )
        self.u2, self.u1 = ResBlock(4 * c, c, c_time), ResBlock(2 * c, c, c_time)
        self.out = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x, t):
        freq = torch.exp(-math.log(1e4) * torch.arange(self.c_time // 2) / (self.c_time // 2))
        t = torch.cat([(t[:, None] * freq).sin(), (t[:, None] * freq).cos()], 1)
        a = self.d1(self.stem(x), t)
        b = self.d2(fn.avg_pool2d(a, 2), t)
        m = self.mid(fn.avg_pool2d(b, 2), t)
        h = self.u2(torch.cat([fn.interpolate(m, scale_factor=2), b], 1), t)
        return self.out(self.u1(torch.cat([fn.interpolate(h, scale_factor=2), a], 1), t))


class LitDiffusion(nn.Module):
    def __init__(self, lr=2e-4, timesteps=200):
        super().__init__()
        self.lr, self.timesteps, self.net = lr, timesteps, UNet()
        self.register_buffer(
            "alpha_bar", torch.cumprod(1 - torch.linspace(1e-4, 0.04, timesteps), 0)
        )

    def shared_step(self, batch):
        (x0,) = batch
        t = torch.randint(0, self.timesteps, (len(x0),))
        noise = torch.randn_like(x0)
        ab = self.alpha_bar[t][:, None, None, None]
        return fn.mse_loss(self.net(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t.float()), noise)

    def training_step(self, batch, batch_idx):
        return self.shared_step(batch)

    @torch.no_grad()
    def validation_step(self, batch, batch_idx):
        return self.shared_step(batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class MiniTrainer:
    def __init__(self, max_steps, val_check_interval):
        self.max_steps, self.val_check_interval = max_steps, val_check_interval

    def validate(self, model, loader):
        model.eval()
        losses = [model.validation_step(batch, i) for i, batch in enumerate(loader)]
        model.train()
        return torch.stack(losses).mean().item()

    def fit(self, model, train_loader, val_loader):
        optimizer = model.configure_optimizers()
        watch = Watch()
        for step, batch in enumerate(train_loader, start=1):
            watch("training_step")
            loss = model.training_step(batch, step)
            watch("backward")
            optimizer.zero_grad()
            loss.backward()
            watch("optimizer_step")
            optimizer.step()
            if step % self.val_check_interval == 0:
                watch("validation")
                print(
                    f"step {step}: train_loss={loss.item():.4f} val_loss={self.validate(model, val_loader):.4f}"
                )
            watch.step()
            if step >= self.max_steps:
                break
        watch.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    seed_everything(7)
    textures = fn.avg_pool2d(torch.randn(400, 1, 36, 36), 5, stride=1) * 4
    train, val = random_split(TensorDataset(textures), [300, 100])
    MiniTrainer(max_steps=16, val_check_interval=8).fit(
        LitDiffusion(),
        DataLoader(train, batch_size=12, shuffle=True),
        DataLoader(val, batch_size=20),
    )
