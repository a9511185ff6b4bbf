"""A Profile written for other programs."""
