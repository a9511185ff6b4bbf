"""Data scientist at a phone company: churn MLP on customer rows streamed from the export of the
data warehouse.

One CSV file, read once from top to bottom in chunks.
"""

import csv
import os
import random
import tempfile

import torch
from instrument_me import Watch
from torch import nn

torch.manual_seed(2024)
torch.set_num_threads(1)
random.seed(2024)

NUMERIC = [f"usage_{i:02d}" for i in range(16)]
PLANS = ["basic", "family", "business", "prepaid"]
CHUNK = 2048


def export_table(path, rows):
    with open(path, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["customer", "plan", *NUMERIC, "churned"])
        for i in range(rows):
            values = [f"{random.gauss(0, 1):.4f}" for _ in NUMERIC]
            out.writerow([f"C{i:07d}", random.choice(PLANS), *values, int(random.random() < 0.2)])


def chunks(path, size):
    feats, labels = [], []
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            one_hot = [1.0 if row["plan"] == p else 0.0 for p in PLANS]
            feats.append([float(row[c]) for c in NUMERIC] + one_hot)
            labels.append(float(row["churned"]))
            if len(feats) == size:
                yield torch.tensor(feats), torch.tensor(labels)
                feats, labels = [], []


class ChurnNet(nn.Module):
    def __init__(self, n_in, width, p=0.1):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(p),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(p),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x).squeeze(1)


path = os.path.join(tempfile.mkdtemp(), "customers.csv")
export_table(path, 15 * CHUNK)
model = ChurnNet(len(NUMERIC) + len(PLANS), 320)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(4.0))

watch = Watch()
seen = 0
for x, y in chunks(path, CHUNK):
    watch("forward")
    loss = loss_fn(model(x), y)
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    seen += len(y)
    if seen % (4 * CHUNK) == 0:
        print(f"{seen:>7d} customers, loss {loss.item():.4f}")
    watch.step()
watch.close()
os.remove(path)
os.rmdir(os.path.dirname(path))
