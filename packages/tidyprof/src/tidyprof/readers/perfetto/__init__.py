"""Perfetto traces, as AMD's profilers write them."""
