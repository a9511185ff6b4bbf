"""Written by someone whose machine was switched off once too often.
Trains a recommender with large embedding tables and keeps its state on the disk as it goes."""

import os
import tempfile

import torch
import torch.nn as nn
from instrument_me import Watch

USERS, ITEMS, WIDTH = 60000, 40000, 64


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH, sparse=True)
        self.items = nn.Embedding(ITEMS, WIDTH, sparse=True)
        self.tower = nn.Sequential(
            nn.Linear(2 * WIDTH, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU()
        )
        self.out = nn.Linear(64, 1)

    def forward(self, user, item):
        return self.out(self.tower(torch.cat([self.users(user), self.items(item)], 1))).squeeze(1)


def save(folder, step, model, optimizer):
    path = os.path.join(folder, "last.pt")
    with open(path + ".new", "wb") as file:
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


torch.set_num_threads(1)
torch.manual_seed(13)
model = Recommender()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()

with tempfile.TemporaryDirectory() as folder:
    watch = Watch()
    for step in range(14):
        user, item = torch.randint(0, USERS, (4096,)), torch.randint(0, ITEMS, (4096,))
        liked = ((user + item) % 3 == 0).float()
        watch("forward")
        loss = criterion(model(user, item), liked)
        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        watch("optimizer")
        optimizer.step()
        watch("checkpoint")
        save(folder, step, model, optimizer)
        if step % 5 == 0:
            print(step, loss.item())
        watch.step()
    watch.close()
