"""Seismology group: P and S phase picker, a 1-D U-Net on three-component waveforms.

Waveforms are kept the way the station archive delivers them, one gzipped JSON document per event.
"""

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as fn
from instrument_me import Watch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(17)
SAMPLES = 3072


def write_archive(folder, n_events=48):
    rng = np.random.default_rng(17)
    for k in range(n_events):
        p, s = sorted(rng.integers(200, SAMPLES - 200, 2).tolist())
        wave = rng.normal(0, 0.1, (3, SAMPLES))
        wave[:, p:] += np.exp(-np.arange(SAMPLES - p) / 150) * np.sin(np.arange(SAMPLES - p) / 4)
        wave[:, s:] += (
            2 * np.exp(-np.arange(SAMPLES - s) / 250) * np.sin(np.arange(SAMPLES - s) / 7)
        )
        doc = {
            "event": f"ev{k:05d}",
            "p": p,
            "s": s,
            "channels": {c: w.round(5).tolist() for c, w in zip("ZNE", wave, strict=True)},
        }
        with gzip.open(folder / f"ev{k:05d}.json.gz", "wt", compresslevel=4) as f:
            json.dump(doc, f)


def read_event(path):
    with gzip.open(path, "rt") as f:
        doc = json.load(f)
    wave = torch.tensor([doc["channels"][c] for c in "ZNE"])
    t = torch.arange(SAMPLES)
    target = torch.stack([torch.exp(-(((t - doc[ph]) / 20.0) ** 2)) for ph in "ps"])
    return wave / wave.std(), target


class PhaseNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.inp = nn.Conv1d(3, w, 7, padding=3)
        self.down1, self.down2 = nn.Conv1d(w, 2 * w, 7, 4, 3), nn.Conv1d(2 * w, 4 * w, 7, 4, 3)
        self.up2, self.up1 = (
            nn.ConvTranspose1d(4 * w, 2 * w, 4, 4),
            nn.ConvTranspose1d(4 * w, w, 4, 4),
        )
        self.out = nn.Conv1d(2 * w, 2, 1)

    def forward(self, x):
        a = fn.relu(self.inp(x))
        b = fn.relu(self.down1(a))
        c = fn.relu(self.down2(b))
        u = fn.relu(self.up2(c))
        u = fn.relu(self.up1(torch.cat([u, b], 1)))
        return self.out(torch.cat([u, a], 1))


with tempfile.TemporaryDirectory() as tmp:
    archive = Path(tmp)
    write_archive(archive)
    files = sorted(archive.glob("*.json.gz"))
    net = PhaseNet()
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    order = torch.Generator().manual_seed(1)

    watch = Watch()
    for step in range(14):
        chosen = torch.randint(len(files), (16,), generator=order).tolist()
        events = [read_event(files[i]) for i in chosen]
        x = torch.stack([e[0] for e in events])
        y = torch.stack([e[1] for e in events])

        watch("forward")
        loss = fn.binary_cross_entropy_with_logits(net(x), y)
        watch("backward")
        optim.zero_grad(set_to_none=True)
        loss.backward()
        watch("optimizer")
        optim.step()
        if step % 3 == 0:
            print(f"step={step} bce={loss.item():.4f}")
        watch.step()
    watch.close()
