"""Chemistry group: message-passing network that predicts an energy from atom types and positions.

Graphs are made in the Dataset from coordinates with a distance cutoff and a radial basis.
"""

import math
import random

import torch
from instrument_me import Watch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CUTOFF = 3.0
N_RBF = 12


class Molecules(Dataset):
    def __init__(self, n_mol, seed=0):
        rng = random.Random(seed)
        self.mols = []
        for _ in range(n_mol):
            n = rng.randint(28, 38)
            pos = [[rng.uniform(0, 9) for _ in range(3)] for _ in range(n)]
            z = [rng.choice([1, 6, 7, 8]) for _ in range(n)]
            self.mols.append((z, pos, -sum(z) + rng.gauss(0, 0.1)))

    def __len__(self):
        return len(self.mols)

    def __getitem__(self, idx):
        z, pos, energy = self.mols[idx]
        src, dst, feat = [], [], []
        for i in range(len(z)):
            for j in range(len(z)):
                if i == j:
                    continue
                d = math.sqrt(sum((a - b) ** 2 for a, b in zip(pos[i], pos[j], strict=True)))
                if d < CUTOFF:
                    src.append(i)
                    dst.append(j)
                    feat.append(
                        [math.exp(-4.0 * (d - k * CUTOFF / N_RBF) ** 2) for k in range(N_RBF)]
                    )
        return torch.tensor(z), torch.tensor([src, dst]), torch.tensor(feat), energy


def collate(items):
    zs, edges, feats, owner, offset = [], [], [], [], 0
    for k, (z, edge, feat, _) in enumerate(items):
        zs.append(z)
        edges.append(edge + offset)
        feats.append(feat)
        owner.append(torch.full_like(z, k))
        offset += len(z)
    return (
        torch.cat(zs),
        torch.cat(edges, 1),
        torch.cat(feats),
        torch.cat(owner),
        torch.tensor([i[3] for i in items]),
    )


class MPNN(nn.Module):
    def __init__(self, dim=64, rounds=3):
        super().__init__()
        self.embed = nn.Embedding(10, dim)
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(N_RBF, dim), nn.SiLU(), nn.Linear(dim, dim))
            for _ in range(rounds)
        )
        self.updates = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU()) for _ in range(rounds)
        )
        self.readout = nn.Linear(dim, 1)

    def forward(self, z, edge, feat, owner, n_mol):
        h = self.embed(z)
        for filt, update in zip(self.filters, self.updates, strict=True):
            msg = h[edge[0]] * filt(feat)
            agg = torch.zeros_like(h).index_add(0, edge[1], msg)
            h = h + update(torch.cat([h, agg], 1))
        return torch.zeros(n_mol).index_add(0, owner, self.readout(h).squeeze(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Molecules(600), batch_size=40, shuffle=True, collate_fn=collate, num_workers=1
    )
    model = MPNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = Watch()
    for step, (z, edge, feat, owner, energy) in enumerate(loader):
        watch("forward")
        loss = nn.functional.l1_loss(model(z, edge, feat, owner, len(energy)), energy)
        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        watch("optimizer")
        optimizer.step()
        if step % 5 == 0:
            print(f"{step:4d} MAE {loss.item():8.3f}  ({edge.shape[1]} edges)")
        watch.step()
    watch.close()


if __name__ == "__main__":
    main()
