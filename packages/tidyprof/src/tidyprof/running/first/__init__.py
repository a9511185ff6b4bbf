"""The first folder on the PYTHONPATH of a program with hooks. It contains only sitecustomize.py."""
