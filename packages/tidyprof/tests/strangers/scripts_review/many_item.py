"""Written by an analyst who wants a line for every customer.
Trains a small classifier and notes guess, loss and confidence of each sample in a table."""

import torch
import torch.nn as nn
from instrument_me import Watch

torch.set_num_threads(1)
torch.manual_seed(17)
BATCH = 657
features = torch.randn(BATCH * 4, 64)
segment = (features[:, :8] + 0.5 * torch.randn(BATCH * 4, 8)).argmax(1)
model = nn.Sequential(
    nn.Linear(64, 144), nn.ReLU(), nn.Linear(144, 144), nn.ReLU(), nn.Linear(144, 8)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
table = ["step;hit;guess;loss;confidence"]

watch = Watch()
for step in range(20):
    rows = torch.randint(0, len(features), (BATCH,))
    x, y = features[rows], segment[rows]
    watch("forward")
    logits = model(x)
    losses = nn.functional.cross_entropy(logits, y, reduction="none")
    watch("backward")
    optimizer.zero_grad()
    losses.mean().backward()
    watch("optimizer")
    optimizer.step()
    watch("metrics")
    chances = logits.detach().softmax(1)
    total, worst, hits, sure = 0.0, 0.0, 0, 0
    for chance, target, loss in zip(chances, y.tolist(), losses.detach(), strict=True):
        confidence, guess = chance.max(0)
        total += loss.item()
        worst = max(worst, loss.item())
        hit = guess.item() == target
        hits += hit
        sure += confidence.item() > 0.9
        table.append(f"{step};{hit:d};{guess.item()};{loss.item():.4f};{confidence.item():.4f}")
    if step % 5 == 0:
        print(f"{step} mean {total / BATCH:.4f} worst {worst:.4f} hits {hits} sure {sure}")
    watch.step()
watch.close()
