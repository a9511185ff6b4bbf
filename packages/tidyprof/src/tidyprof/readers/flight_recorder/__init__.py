"""Reader for PyTorch flight recorder dumps, which list each rank's collective calls and the lines
of code that made them.
"""
