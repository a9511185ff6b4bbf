"""`python -m proflab.tapes TOOL ...`: the command that the launchers in `bin` run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from proflab.tapes.options import TOOLS, ToolError
from proflab.tapes.player import play
from tidyprof.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the command of the tool that is named first and return its exit code, or 2 if no tape
    fits.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in TOOLS:
        print(f"error: name a tool: {', '.join(TOOLS)}", file=sys.stderr)
        return 2
    try:
        return play(words[0], words[1:], os.environ)
    except ToolError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except UserError as error:
        print(f"{words[0]}: replay: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
