"""The Chrome traces of torch.profiler."""
