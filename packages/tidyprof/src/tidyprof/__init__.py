"""Profiler output in, tidy tables and plots out.

`read` turns the files of a profiler into a `Profile`; analyses such as `kernels` turn a Profile
into a table. Names are loaded at their first use, so that `import tidyprof` stays quick;
`__init__.pyi` lists them.
"""

from tidyprof.lazy_names import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
