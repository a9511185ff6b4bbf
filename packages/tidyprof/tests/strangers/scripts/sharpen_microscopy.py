"""Imaging facility: super-resolution of microscopy tiles, pixel loss first, then perceptual loss on
top.

A fixed VGG supplies the features for the perceptual part.
"""

from functools import cached_property

import torch
import torchvision
from instrument_me import Watch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
torch.manual_seed(4)

hparams = {
    "batch": 6,
    "tile": 48,
    "scale": 2,
    "steps": 14,
    "lr": 5e-4,
    "perceptual_after": 6,
    "perceptual_weight": 0.05,
}


class SharpenNet(nn.Module):
    def __init__(self, width=40, blocks=4, scale=2):
        super().__init__()
        self.scale = scale
        self.head = nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(blocks)
        )
        self.tail = nn.Sequential(nn.Conv2d(width, scale**2, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, low):
        h = self.head(low)
        for block in self.body:
            h = h + block(h)
        up = functional.interpolate(
            low, scale_factor=self.scale, mode="bilinear", align_corners=False
        )
        return up + self.tail(h)


class Losses:
    def __init__(self, hp):
        self.hp = hp

    @cached_property
    def vgg(self):
        net = torchvision.models.vgg16(weights=None).features[:5].eval()
        return net.requires_grad_(False)

    def __call__(self, out, target, step):
        loss = functional.l1_loss(out, target)
        if step >= self.hp["perceptual_after"]:
            a, b = self.vgg(out.expand(-1, 3, -1, -1)), self.vgg(target.expand(-1, 3, -1, -1))
            loss = loss + self.hp["perceptual_weight"] * functional.mse_loss(a, b)
        return loss


def tiles(n, size):
    # blurred speckle
    return functional.avg_pool2d(torch.rand(n, 1, size + 4, size + 4), 5, stride=1) * 3 - 1


def train(hp):
    model, losses = SharpenNet(scale=hp["scale"]), Losses(hp)
    optimizer = torch.optim.Adam(model.parameters(), lr=hp["lr"])
    watch = Watch()
    for step in range(hp["steps"]):
        high = tiles(hp["batch"], hp["tile"] * hp["scale"])
        low = functional.avg_pool2d(high, hp["scale"])
        watch("model")
        out = model(low)
        watch("loss")
        loss = losses(out, high, step)
        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        watch("optimizer")
        optimizer.step()
        if step % 3 == 0:
            print(f"step {step:02d} loss {loss.item():.5f}")
        watch.step()
    watch.close()


train(hparams)
