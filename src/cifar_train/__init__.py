"""A plain CIFAR-100 trainer with switches worth profiling.

Importing it is quick and safe on a login node: torch is imported when training begins.
"""
