"""Reader for Chrome traces from torch.profiler."""
