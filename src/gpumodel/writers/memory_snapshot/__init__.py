"""The snapshot of PyTorch's memory allocator."""
