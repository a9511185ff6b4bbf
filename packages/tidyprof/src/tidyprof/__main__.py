"""The command line: `python -m tidyprof --help`."""

import sys
import traceback

from tidyprof.standard_streams import tell


def run() -> int:
    """Return the exit code of `tidyprof.cli.main.main`. If the import fails because of a bug,
    return 3.
    """
    try:
        from tidyprof.cli.main import main
    except Exception:
        tell(traceback.format_exc().rstrip())
        return 3
    return main()


if __name__ == "__main__":
    sys.exit(run())
