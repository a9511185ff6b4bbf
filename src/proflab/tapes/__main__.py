"""Entry point of `python -m proflab.tapes TOOL ...`, which the launchers in `bin` run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from proflab.tapes.options import ToolError
from proflab.tapes.player import NoTapeError, play
from tidyprof.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a command of the tool that the first argument names.

    Return the command's exit code, or 2 if no tape matches.
    """
    tool, *words = sys.argv[1:] if arguments is None else arguments
    try:
        return play(tool, words, os.environ)
    except ToolError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except UserError as error:
        commands = error.commands if isinstance(error, NoTapeError) else ()
        text = "\n    ".join([f"{tool}: replay: {error}", *commands])
        print(text, file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
