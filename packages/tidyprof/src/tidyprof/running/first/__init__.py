"""The first folder on the PYTHONPATH of a program with hooks. It provides only sitecustomize.py."""
