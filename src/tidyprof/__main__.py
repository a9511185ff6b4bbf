"""The command line: `python -m tidyprof --help`."""

from tidyprof.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
