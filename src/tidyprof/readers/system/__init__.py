"""Logs of system monitors."""
