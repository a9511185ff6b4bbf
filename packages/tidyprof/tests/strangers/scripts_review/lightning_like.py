"""Written by a fan of Lightning who may not install it on his cluster. A module with training_step
and validation_step, and a fit loop of his own that validates every seven steps.
"""

import torch
import torch.nn as nn
from instrument_me import Watch
from torch.utils.data import DataLoader, TensorDataset


class LitClassifier(nn.Module):
    def __init__(self, width=32, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.logged = {}
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, 10),
        )

    def forward(self, x):
        return self.net(x)

    def log(self, name, value):
        self.logged[name] = value.detach()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        return nn.functional.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Fit:
    def __init__(self, max_steps, val_check_interval):
        self.max_steps, self.val_check_interval = max_steps, val_check_interval

    def validate(self, module, loader):
        module.eval()
        with torch.no_grad():
            results = [
                torch.stack(module.validation_step(batch, i)) for i, batch in enumerate(loader)
            ]
        module.train()
        loss, accuracy = torch.stack(results).mean(0).tolist()
        return loss, accuracy

    def fit(self, module, train_loader, val_loader):
        optimizer = module.configure_optimizers()
        module.train()
        watch = Watch()
        for step, batch in zip(range(self.max_steps), train_loader, strict=False):
            watch("forward")
            loss = module.training_step(batch, step)
            watch("backward")
            optimizer.zero_grad()
            loss.backward()
            watch("optimizer")
            optimizer.step()
            if step and step % self.val_check_interval == 0:
                watch("validation")
                val_loss, accuracy = self.validate(module, val_loader)
                print(
                    f"step {step} train {module.logged['train_loss']:.3f} val {val_loss:.3f} acc {accuracy:.2f}"
                )
            watch.step()
        watch.close()


def blobs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    colours = torch.rand(10, 3, 1, 1, generator=torch.Generator().manual_seed(9))
    return TensorDataset(
        colours[labels] + 0.3 * torch.randn(count, 3, 48, 48, generator=generator), labels
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(7)
    train = DataLoader(blobs(480, 1), batch_size=32, shuffle=True)
    val = DataLoader(blobs(128, 2), batch_size=32)
    Fit(max_steps=15, val_check_interval=7).fit(LitClassifier(), train, val)
