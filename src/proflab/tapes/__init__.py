"""Tapes: recorded commands of AMD's profilers, and a player that replays them without a GPU.

A tape is a folder of `recordings/tapes` with `tape.json` and the files that the command wrote. The
player checks a command line as the tool's release does, finds the tape of that command, and writes
the tape's files where the options ask for them. `append_to_path` puts the player at the end of PATH
for missing tools. A real tool always wins.
"""

from __future__ import annotations

from proflab.tapes.path import append_to_path

__all__ = ["append_to_path"]
