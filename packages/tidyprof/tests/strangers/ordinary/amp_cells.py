"""Segment made-up cells with mixed precision: autocast, and a GradScaler where there is a GPU."""

import argparse

import torch
from torch import nn

SIDE, BATCH = 64, 6


def cells(device):
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    mask = torch.zeros(BATCH, SIDE, SIDE)
    for picture in mask:
        for _ in range(4):
            cy, cx, r = (
                torch.randint(SIDE, (1,)),
                torch.randint(SIDE, (1,)),
                torch.randint(4, 11, (1,)),
            )
            picture.masked_fill_((y - cy) ** 2 + (x - cx) ** 2 < r**2, 1.0)
    return (mask + 0.5 * torch.randn(mask.shape)).unsqueeze(1).to(device), mask.unsqueeze(1).to(
        device
    )


def conv(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
    )  # fmt: skip


class SmallUNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.one, self.two, self.low = (
            conv(1, width),
            conv(width, 2 * width),
            conv(2 * width, 4 * width),
        )
        self.up2, self.up1 = conv(6 * width, 2 * width), conv(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        one = self.one(x)
        two = self.two(nn.functional.max_pool2d(one, 2))
        low = self.low(nn.functional.max_pool2d(two, 2))
        high = self.up2(torch.cat([nn.functional.interpolate(low, scale_factor=2.0), two], 1))
        return self.head(
            self.up1(torch.cat([nn.functional.interpolate(high, scale_factor=2.0), one], 1))
        )


def border_loss(logits, mask):
    """Cross entropy that weighs the borders of cells, near and far, picture by picture and row by
    row.
    """
    losses = []
    for picture, truth in zip(logits.squeeze(1), mask.squeeze(1), strict=True):
        for reach in (1, 2, 4):
            for n in range(reach, SIDE):
                edge = (truth[n] - truth[n - reach]).abs()
                weight = 1.0 + 4.0 * edge / (edge.sum() + 1.0)
                loss = nn.functional.binary_cross_entropy_with_logits(
                    picture[n].float(), truth[n], weight
                )
                losses.append(loss / reach)
    return torch.stack(losses).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--border", action="store_true", help="weigh the borders of cells")
    args = parser.parse_args()
    torch.manual_seed(9)
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    model = SmallUNet().to(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(kind, enabled=kind == "cuda")
    precision = torch.float16 if kind == "cuda" else torch.bfloat16
    for step in range(120):
        pictures, mask = cells(kind)
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=precision):
            logits = model(pictures)
            if args.border:
                loss = border_loss(logits, mask)
            else:
                loss = nn.functional.binary_cross_entropy_with_logits(logits, mask)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            overlap = ((logits > 0) & (mask > 0.5)).sum() / ((logits > 0) | (mask > 0.5)).sum()
            print(f"step {step:3d} | loss {loss.item():.4f} | overlap {overlap.item():.3f}")


if __name__ == "__main__":
    main()
