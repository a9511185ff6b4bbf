"""Oceanographer: convolutional LSTM that forecasts sea-surface temperature, with a figure to look
at while it trains.

Fields are travelling waves on a coarse grid.
"""

import os
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from instrument_me import Watch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
figdir = tempfile.mkdtemp(prefix="sst_")


def fields(n, t, size=32):
    k, w, ph = torch.rand(n, 1, 1, 1) * 4 + 1, torch.rand(n, 1, 1, 1), torch.rand(n, 1, 1, 1) * 6
    x = torch.linspace(0, 6.28, size).view(1, 1, 1, -1)
    y = torch.linspace(0, 6.28, size).view(1, 1, -1, 1)
    time = torch.arange(t).view(1, -1, 1, 1)
    return torch.sin(k * x + w * time + ph) + 0.5 * torch.cos(k * y - w * time)


class ConvLSTM(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(1 + hidden, 4 * hidden, 3, padding=1)
        self.head = nn.Conv2d(hidden, 1, 1)

    def forward(self, seq):
        b, t, h, w = seq.shape
        hid = cell = seq.new_zeros(b, self.hidden, h, w)
        for k in range(t):
            i, f, o, g = self.gates(torch.cat([seq[:, k : k + 1], hid], 1)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hid = o.sigmoid() * cell.tanh()
        return self.head(hid)[:, 0]


def plot_forecast(truth, forecast, history, step):
    fig, axes = plt.subplots(1, 3, figsize=(10, 3))
    axes[0].pcolormesh(truth, cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    axes[0].set_title("observed")
    axes[1].pcolormesh(forecast, cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    axes[1].set_title(f"forecast, step {step}")
    axes[2].plot(history)
    axes[2].set_yscale("log")
    fig.savefig(os.path.join(figdir, "latest.png"), dpi=80)
    plt.close(fig)


model = ConvLSTM()
opt = torch.optim.Adam(model.parameters(), 3e-3)
history = []
watch = Watch()
for step in range(15):
    seq = fields(8, 7)
    watch("forward")
    pred = model(seq[:, :-1])
    loss = (pred - seq[:, -1]).square().mean()
    watch("backward")
    opt.zero_grad()
    loss.backward()
    watch("optimizer")
    opt.step()
    history.append(loss.item())
    plot_forecast(seq[0, -1].numpy(), pred[0].detach().numpy(), history, step)
    watch.step()
watch.close()
print("loss:", [round(h, 3) for h in history])
os.remove(os.path.join(figdir, "latest.png"))
os.rmdir(figdir)
