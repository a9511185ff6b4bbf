"""Which operators a training step runs: recorded on tensors without data, or shipped with the
model.
"""
