"""Tidy tables and plots from profiler output.

`read` converts a profiler's files to a `Profile`. Analyses such as `kernels` convert a Profile to a
table. All public names are listed in `__init__.pyi`. Names are loaded on first use, so `import
tidyprof` stays fast.
"""

from tidyprof.lazy_names import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
