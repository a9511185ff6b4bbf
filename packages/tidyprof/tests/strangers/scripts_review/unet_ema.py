"""Written by a doctoral student in medical imaging. Segments synthetic disks with a small U-Net and
keeps an exponential moving average of the weights.
"""

import copy

import torch
import torch.nn as nn
from instrument_me import Watch

torch.set_num_threads(1)
torch.manual_seed(11)


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        a, b, c = widths
        self.down1, self.down2, self.middle = double(1, a), double(a, b), double(b, c)
        self.lift2, self.up2 = nn.ConvTranspose2d(c, b, 2, stride=2), double(2 * b, b)
        self.lift1, self.up1 = nn.ConvTranspose2d(b, a, 2, stride=2), double(2 * a, a)
        self.head = nn.Conv2d(a, 1, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(nn.functional.max_pool2d(one, 2))
        x = self.middle(nn.functional.max_pool2d(two, 2))
        x = self.up2(torch.cat([self.lift2(x), two], 1))
        x = self.up1(torch.cat([self.lift1(x), one], 1))
        return self.head(x)


class EMA:
    def __init__(self, model, decay=0.995):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.shadow.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)


def disks(count, size=96):
    axis = torch.linspace(-1, 1, size)
    centre, radius = torch.rand(count, 2, 1, 1) - 0.5, 0.15 + 0.3 * torch.rand(count, 1, 1)
    mask = (
        (axis[None, :, None] - centre[:, 0]) ** 2 + (axis[None, None, :] - centre[:, 1]) ** 2
        < radius**2
    ).float()
    return (mask + 0.4 * torch.randn(count, size, size))[:, None], mask[:, None]


images, masks = disks(96)
model = UNet()
ema = EMA(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
watch = Watch()
for step in range(14):
    chosen = torch.randint(0, len(images), (6,))
    x, y = images[chosen], masks[chosen]
    watch("forward")
    logits = model(x)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
    watch("backward")
    loss.backward()
    watch("optimizer")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    watch("ema")
    ema.update(model)
    if step % 5 == 0:
        print(step, round(loss.item(), 4))
    watch.step()
watch.close()
