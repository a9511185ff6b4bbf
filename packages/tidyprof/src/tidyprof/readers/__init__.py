"""Readers of profiler files, one folder per format; `registry` lists them."""
