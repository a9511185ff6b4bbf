"""Settings for all benchmarks. Run them with `make bench` on an idle machine."""

import os

# Use the same thread count everywhere, so that runs on one machine are comparable.
os.environ.setdefault("OMP_NUM_THREADS", "2")
