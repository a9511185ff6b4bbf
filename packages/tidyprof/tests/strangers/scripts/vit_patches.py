"""Weekend project of a hobbyist: a small vision transformer on coloured shapes, written from the
paper.

Images are drawn once into memory; the script trains a few steps and prints loss and accuracy.
"""

import torch
import torch.nn as nn
import torch.nn.functional as fn
from instrument_me import Watch

torch.manual_seed(0)
torch.set_num_threads(1)

IMG, PATCH, DIM, DEPTH, HEADS, CLASSES, BS = 64, 8, 192, 4, 6, 5, 24

# blobs of different size and colour
labels = torch.randint(0, CLASSES, (512,))
yy, xx = torch.meshgrid(torch.linspace(-1, 1, IMG), torch.linspace(-1, 1, IMG), indexing="ij")
radius = 0.2 + 0.15 * labels.float()
disk = ((xx**2 + yy**2)[None] < (radius**2)[:, None, None]).float()
images = disk[:, None] * torch.rand(512, 3, 1, 1) + 0.1 * torch.randn(512, 3, IMG, IMG)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        att = fn.scaled_dot_product_attention(q, k, v)
        x = x + self.out(att.transpose(1, 2).reshape(b, n, DIM))
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, DIM))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (IMG // PATCH) ** 2 + 1, DIM))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


model = ViT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
watch = Watch()
for it in range(16):
    idx = torch.randint(0, len(images), (BS,))
    x, y = images[idx], labels[idx]
    watch("forward")
    logits = model(x)
    loss = fn.cross_entropy(logits, y)
    watch("backward")
    opt.zero_grad()
    loss.backward()
    watch("optimizer")
    opt.step()
    if it % 5 == 0:
        print(
            f"it {it:3d}  loss {loss.item():.3f}  acc {(logits.argmax(1) == y).float().mean().item():.2f}"
        )
    watch.step()
watch.close()
