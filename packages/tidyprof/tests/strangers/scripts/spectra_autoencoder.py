"""Beamline scientist: autoencoder for X-ray spectra; the cluster kills jobs, so the run must be
resumable.

Keeps model, optimizer and random state in one file.
"""

import os
import tempfile

import torch
import torch.nn as nn
from instrument_me import Watch

torch.manual_seed(8)
torch.set_num_threads(1)

workdir = tempfile.TemporaryDirectory()
CKPT = os.path.join(workdir.name, "latest.pt")

channels = 1024
energy = torch.linspace(0, 1, channels)
centres, widths = torch.rand(2000, 6, 1), 0.005 + 0.02 * torch.rand(2000, 6, 1)
spectra = (torch.rand(2000, 6, 1) * torch.exp(-(((energy - centres) / widths) ** 2))).sum(1)
spectra += 0.02 * torch.randn_like(spectra)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(channels, 768), nn.ELU(), nn.Linear(768, 256), nn.ELU(), nn.Linear(256, 16)
        )
        self.dec = nn.Sequential(
            nn.Linear(16, 256), nn.ELU(), nn.Linear(256, 768), nn.ELU(), nn.Linear(768, channels)
        )

    def forward(self, x):
        z = self.enc(x)
        return self.dec(z), z


def save_state(model, optimizer, step):
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "step": step,
    }
    with open(CKPT + ".tmp", "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(CKPT + ".tmp", CKPT)


model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
watch = Watch()
for step in range(15):
    x = spectra[torch.randint(0, len(spectra), (128,))]
    watch("forward")
    recon, z = model(x)
    loss = nn.functional.mse_loss(recon, x) + 1e-4 * z.pow(2).mean()
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    watch("bookkeeping")
    save_state(model, optimizer, step)
    if step % 5 == 0:
        print("step", step, "mse", loss.item())
    watch.step()
watch.close()
workdir.cleanup()
