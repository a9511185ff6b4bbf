"""The command line: `python -m tidyprof --help`."""
