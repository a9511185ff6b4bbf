"""Forestry group: which lidar points are stem, branch or ground, from surface normals around key
points.

Clouds are random cylinders over a rough plane; a residual MLP does the classification.
"""

import torch
from instrument_me import Watch
from torch import nn

torch.manual_seed(41)
torch.set_num_threads(1)


def forest_cloud(n=600):
    kind = torch.randint(0, 3, (n,))
    u, v = 6.28 * torch.rand(n), torch.rand(n)
    ground = torch.stack([4 * torch.rand(n) - 2, 4 * torch.rand(n) - 2, 0.05 * torch.randn(n)], 1)
    stem = torch.stack([0.3 * u.cos(), 0.3 * u.sin(), 3 * v], 1)
    branch = torch.stack([2 * v, 0.08 * u.cos(), 2 + 0.08 * u.sin()], 1)
    cloud = torch.stack([ground, stem, branch], 1)[torch.arange(n), kind]
    return cloud + 0.01 * torch.randn(n, 3), kind


def local_shape(cloud, keypoints, k=12):
    descriptors = []
    for i in keypoints:
        dist = (cloud - cloud[i]).norm(dim=1)
        near = cloud[dist.topk(k, largest=False).indices]
        near = near - near.mean(0)
        values, vectors = torch.linalg.eigh(near.T @ near)
        descriptors.append(torch.cat([cloud[i], values / values.sum(), vectors[:, 0].abs()]))
    return torch.stack(descriptors)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.f(x)


net = nn.Sequential(nn.Linear(9, 512), Residual(512), nn.Linear(512, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

watch = Watch()
for n in range(18):
    cloud, kind = forest_cloud()
    watch("descriptors")
    keypoints = torch.randperm(len(cloud))[:260].tolist()
    desc = local_shape(cloud, keypoints)
    watch("network")
    logits = net(desc)
    loss = nn.functional.cross_entropy(logits, kind[keypoints])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if n % 6 == 0:
        print(
            f"cloud {n}: loss {loss.item():.3f}, {(logits.argmax(1) == kind[keypoints]).float().mean():.0%} right"
        )
    watch.step()
watch.close()
