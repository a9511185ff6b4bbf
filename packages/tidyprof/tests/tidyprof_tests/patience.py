"""How long tests wait for what must happen."""

PATIENCE_S = 1200.0
"""Longest wait for an event, far beyond reason: a machine may be slow or busy, and that proves
nothing.
"""
