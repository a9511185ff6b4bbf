"""Classify made-up leaves with a small residual network and the Lightning Trainer."""

import argparse
import random
import tempfile

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 12


def leaves(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    y, x = torch.meshgrid(torch.linspace(-1, 1, 48), torch.linspace(-1, 1, 48), indexing="ij")
    angle, radius = torch.atan2(y, x), (x**2 + y**2).sqrt()
    lobes = (labels + 2).view(-1, 1, 1)
    outline = 0.5 + 0.25 * torch.cos(lobes * angle)
    pictures = (radius < outline).float().unsqueeze(1).repeat(1, 3, 1, 1)
    return TensorDataset(pictures + 0.4 * torch.randn(pictures.shape, generator=generator), labels)


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        return (self.body(x) + self.short(x)).relu()


class Leaves(lightning.LightningModule):
    def __init__(self, learning_rate=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            Block(3, 16, 1), Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(64, CLASSES),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        pictures, labels = batch
        logits = self(pictures)
        loss = nn.functional.cross_entropy(logits, labels)
        self.log("train_loss", loss, prog_bar=True)
        return {"loss": loss, "logits": logits.detach(), "labels": labels}

    def validation_step(self, batch, batch_idx):
        pictures, labels = batch
        self.log("val_acc", (self(pictures).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
        }


class RankingMetrics(lightning.Callback):
    """Area under the curve of each class over what was seen of late, with an interval by
    resampling.
    """

    def __init__(self, keep=320, resamples=60):
        self.keep, self.resamples = keep, resamples
        self.scores, self.labels, self.random = [], [], random.Random(0)

    def area(self, scores, positive):
        good = [s for s, p in zip(scores, positive, strict=True) if p]
        bad = [s for s, p in zip(scores, positive, strict=True) if not p]
        if not good or not bad:
            return 0.5
        wins = 0.0
        for one in good:
            for other in bad:
                wins += 1.0 if one > other else 0.5 if one == other else 0.0
        return wins / (len(good) * len(bad))

    def mean_area(self, rows):
        scores, labels = [self.scores[n] for n in rows], [self.labels[n] for n in rows]
        areas = [
            self.area([row[k] for row in scores], [label == k for label in labels])
            for k in range(CLASSES)
        ]
        return sum(areas) / CLASSES

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.scores = (self.scores + outputs["logits"].softmax(1).tolist())[-self.keep :]
        self.labels = (self.labels + outputs["labels"].tolist())[-self.keep :]
        count = len(self.labels)
        areas = sorted(
            self.mean_area(self.random.choices(range(count), k=count))
            for _ in range(self.resamples)
        )
        module.log("auc_low", areas[0], prog_bar=True)
        module.log("auc_high", areas[-1], prog_bar=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--auc", action="store_true", help="follow the area under the curve while training"
    )
    args = parser.parse_args()
    lightning.seed_everything(3)
    with tempfile.TemporaryDirectory() as place:
        trainer = lightning.Trainer(
            max_epochs=4,
            devices=1,
            default_root_dir=place,
            logger=False,
            log_every_n_steps=5,
            callbacks=[RankingMetrics()] if args.auc else [],
            enable_progress_bar=True,
        )
        trainer.fit(
            Leaves(),
            DataLoader(leaves(32 * 25, 1), 32, shuffle=True),
            DataLoader(leaves(64, 2), 32),
        )
    print(f"validation accuracy {trainer.callback_metrics['val_acc']:.3f}")


if __name__ == "__main__":
    main()
