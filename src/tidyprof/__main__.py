"""The command line: `python -m tidyprof --help`."""

import sys
import traceback


def run() -> int:
    """The exit code of `tidyprof.cli.main.main`; 3 as there (a bug) where even importing it fails."""
    try:
        from tidyprof.cli.main import main
    except Exception:
        traceback.print_exc()
        return 3
    return main()


if __name__ == "__main__":
    sys.exit(run())
