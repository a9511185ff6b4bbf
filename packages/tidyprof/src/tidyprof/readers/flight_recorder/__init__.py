"""Dumps of PyTorch's flight recorder: which collectives each rank called, and from which line."""
