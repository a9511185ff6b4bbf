"""Readers for profiler files. Each format has its own folder, and `registry` lists the formats."""
