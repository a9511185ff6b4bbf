"""Two workers of the DataLoader that are started by spawn and import this file anew."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, index):
        return torch.randn(256, generator=torch.Generator().manual_seed(index))


def main():
    torch.manual_seed(0)
    loader = DataLoader(Noise(), 16, num_workers=2, multiprocessing_context="spawn")
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{len(loader)} steps")


if __name__ == "__main__":
    main()
