"""Export of a Profile for other programs."""
