"""Reader for snapshots of PyTorch's memory allocator."""
