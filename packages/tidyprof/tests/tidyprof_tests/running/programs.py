"""Small programs for `tidyprof run`, and how a test runs one with and without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidyprof_tests.patience import PATIENCE_S

HEAD = """
import sys, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters())
"""

TRAINING = (
    HEAD
    + """
class Points(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, number):
        return torch.randn(8) + number

if __name__ == "__main__":
    losses = []
    for batch in DataLoader(Points(), batch_size=4, **LOADER):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(sum(losses).hex(), torch.rand(1).item().hex())
    print("to standard error", file=sys.stderr)
    sys.exit(5)
"""
)
"""100 steps; what it prints depends on every random number; its exit code is 5."""

BY_HAND = (
    HEAD
    + """
def one_step(number):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

for number in range(STEPS):
    one_step(number)
"""
)
"""Steps without a DataLoader."""


@dataclass(frozen=True)
class Ended:
    """A program that ended: what it wrote, and what the command found (None without a command)."""

    code: int
    output: str
    errors: str
    found: dict[str, Any] | None

    @property
    def rank(self) -> dict[str, Any]:
        """What the hooks of rank 0 told."""
        assert self.found is not None
        return self.found["run"]["0"]


def write(folder: Path, text: str, **names: str) -> Path:
    """A script in the folder; names in capitals stand for these texts."""
    for name, value in names.items():
        text = text.replace(name, value)
    script = folder / "train.py"
    script.write_text(text)
    return script


def plain(command: list[str | Path], folder: Path) -> Ended:
    """Run a command as it is."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    return Ended(done.returncode, done.stdout, done.stderr, None)


def watched(command: list[str | Path], folder: Path, *options: str, **environment: str) -> Ended:
    """Run a command with `tidyprof run` in front of it; files go to `out` in the folder."""
    report = folder / "report.json"
    asked = ["--out", "out", "--json", report.name, *options, "--"]
    done = subprocess.run(
        [sys.executable, "-m", "tidyprof", "run", *asked, *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    found = json.loads(report.read_text()) if report.is_file() else None
    return Ended(done.returncode, done.stdout, done.stderr, found)
