"""Tools for the course notebooks: recordings, exercises, predictions and the first cell of each
lesson.

Each name is imported when it is first used. `import proflab` therefore stays fast and doesn't
need torch or pandas. `__init__.pyi` lists the names.
"""

from tidyprof.lazy_names import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
