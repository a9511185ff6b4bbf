"""Stand-in for rpd2tracing.py of rocmProfileData: writes an .rpd file as a Chrome trace; it reads
real .rpd files, too.

The tracks QueueDepth and Idle are not written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tidyprof.errors import UserError


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int:
    """Read and write. Returns 0. Raises UserError for a file that can't be read or written."""
    target = Path(options.output_json or Path(options.input_rpd).with_suffix(".json"))
    if not target.name.endswith((".json", ".json.gz")):
        raise UserError(
            f"{target}: a Chrome trace is written to a file that ends in .json or .json.gz"
        )
    print(
        f"{tool}: stand-in, nothing was measured here: it reads {options.input_rpd}",
        file=sys.stderr,
    )
    import tidyprof

    try:
        written = tidyprof.write_chrome_trace(tidyprof.read_rpd(options.input_rpd), target)
    except tidyprof.ProfileReadError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(
            f"{target} cannot be written ({error.strerror}); give another file"
        ) from error
    print(f"{target}: {written.events} events")
    return 0
