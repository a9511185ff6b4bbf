"""Chrome traces of torch.profiler."""
