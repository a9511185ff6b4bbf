"""A plain CIFAR-100 trainer with switches that are worth profiling.

Importing this package is quick and safe on a login node because it imports torch only when training
starts.
"""
