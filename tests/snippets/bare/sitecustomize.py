"""Python as in an environment with torch, pandas and matplotlib alone: REFUSED_MODULES can't be imported."""

import os
import sys

REFUSED = frozenset(os.environ["REFUSED_MODULES"].split(","))


class Refuse:
    """Finds nothing, and says of what is refused that it is not there."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse)
