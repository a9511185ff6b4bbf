"""Snapshots of PyTorch's memory allocator."""
