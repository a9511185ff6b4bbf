"""`python -m proflab.standins TOOL ...`: the command that the launchers in bin run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from proflab.standins.options import ToolError, refuse_unmodelled
from proflab.standins.tools import MODULE_OF_TOOL, build_parser, module_of, split
from tidyprof.errors import UserError
from tidyprof.standard_streams import discard


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stand-in that is named first. Returns its exit code; 2 after one line if the stand-in
    itself has to refuse.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in MODULE_OF_TOOL:
        print(f"error: name a tool: {', '.join(MODULE_OF_TOOL)}", file=sys.stderr)
        return 2
    tool, *rest = words
    try:
        code = _run(tool, rest)
        sys.stdout.flush()
        return code
    except ToolError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except UserError as error:
        print(f"{tool}: stand-in: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has had enough
        discard(sys.stdout)
        return 0
    except KeyboardInterrupt:
        return 130


def _run(tool: str, arguments: list[str]) -> int:
    own, program = split(tool, arguments)
    parser, module = build_parser(tool), module_of(tool)
    options = parser.parse_args(own)
    if getattr(options, "version", False):
        print(module.version(tool))
        return 0
    refuse_unmodelled(options)
    code = module.run(tool, options, program) if arguments else None
    if code is None:
        parser.print_help()
    return code or 0


if __name__ == "__main__":
    raise SystemExit(main())
