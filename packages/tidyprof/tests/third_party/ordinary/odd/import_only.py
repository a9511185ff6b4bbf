"""Imports torch and computes with it, without a module or an optimizer."""

import torch

print(f"sum {torch.arange(100).sum().item()}")
