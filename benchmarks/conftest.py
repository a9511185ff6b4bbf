"""Settings shared by all benchmarks: run them by make bench, on an otherwise idle machine."""

import os

# The same thread count everywhere, so that two runs on one machine can be compared.
os.environ.setdefault("OMP_NUM_THREADS", "2")
