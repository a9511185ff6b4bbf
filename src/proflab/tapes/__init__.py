"""Tapes are recorded commands of AMD's profilers. The replay tool plays them without a GPU.

A tape is a folder in `recordings/tapes` that contains `tape.json` and the files that the command
wrote. The replay tool checks a command line against the tool's release and finds the matching tape.
It then writes the tape's files to the places that the options name. `append_to_path` puts the
replay tool at the end of PATH for missing tools, so a real tool always takes precedence.
"""

from __future__ import annotations

from proflab.tapes.path import append_to_path

__all__ = ["append_to_path"]
