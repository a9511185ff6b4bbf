"""Functions that export a Profile for other programs."""
