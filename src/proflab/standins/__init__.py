"""Stand-ins: programs with the names and options of AMD's profilers, for machines without a GPU.

A stand-in checks its options as the tool does, plays the course's workload on gpumodel's GPU, and
writes the files that the tool would write, at the same places. One line tells that nothing was
measured. `append_to_path` makes stand-ins found for missing tools; a real tool always wins.
"""

from __future__ import annotations

from proflab.standins.path import Found, append_to_path

__all__ = ["Found", "append_to_path"]
