"""Looks at what a program sees of how it was started, and pickles a class of its own."""

import pickle
import sys
from pathlib import Path

import schedule  # the file beside this one
import torch


class Settings:
    def __init__(self, words):
        self.words = words


copy = pickle.loads(pickle.dumps(Settings(sys.argv[1:])))
print(__name__, Path(__file__).name, Path(sys.argv[0]).name, copy.words)
print(f"same class {type(copy) is Settings}, main {sys.modules['__main__'].Settings is Settings}")
print(
    f"beside it {Path(schedule.__file__).parent == Path(__file__).resolve().parent}, torch {torch.ones(2).sum().item()}"
)
