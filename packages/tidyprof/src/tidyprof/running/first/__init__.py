"""The folder that comes first on the PYTHONPATH of a program with hooks."""
