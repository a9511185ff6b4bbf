"""A CIFAR-100 trainer with options and injectable faults for profiling practice.

Importing this package is fast and safe on a login node because it doesn't import torch. Only
training imports torch.
"""
