"""Tools for the course notebooks: recordings, exercises, predictions, and a lesson's first cell.

Each name is imported when it is first used, so that `import proflab` stays quick and needs neither
torch nor pandas. `__init__.pyi` lists the names.
"""

from tidyprof.lazy_names import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
