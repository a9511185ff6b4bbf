"""Replay of recorded commands of AMD's profilers on machines without a GPU.

A tape is a folder in `recordings/tapes` that contains `tape.json` and the files that the command
wrote. The replay tool checks a command line against the options of the tool's release and finds
the matching tape. The replay tool then writes the tape's files to the locations that the
command's options name.

`append_to_path` puts the replay tool at the end of PATH, under the names of missing tools. A
real tool therefore always takes precedence.
"""

from __future__ import annotations

from proflab.tapes.path import append_to_path

__all__ = ["append_to_path"]
