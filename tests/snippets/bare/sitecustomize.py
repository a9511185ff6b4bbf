"""Python as in an environment with torch, pandas and matplotlib alone: REFUSED_MODULES can't be
found.
"""

import os
import sys

REFUSED = frozenset(os.environ["REFUSED_MODULES"].split(","))


class Without:
    """Finds what another finder does, but nothing that is refused: `find_spec` gives None, an
    import fails.
    """

    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name in REFUSED else self.finder.find_spec(name, path, target)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
