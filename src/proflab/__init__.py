"""The tools of the course's notebooks: recordings, exercises, predictions and the first cell of a
lesson.

Names are looked up when they are first used, so that `import proflab` stays quick and needs neither
torch nor pandas; `__init__.pyi` lists them.
"""

from tidyprof.lazy_names import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
