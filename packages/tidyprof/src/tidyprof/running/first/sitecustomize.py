"""Load the hooks. Python imports this module automatically when a program starts.

All Python versions must be able to parse this module, because every Python process that the program
starts imports it. The module hides the machine's sitecustomize module, so it also runs that module.
The hooks are loaded by path from a neighboring folder, so the program's Python installation doesn't
need tidyprof.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST = (3, 10)
"""The oldest Python version that can run the hooks."""


def load_hooks():  # type: ignore[no-untyped-def]
    """Import the package `inside` under a name that programs don't use."""
    from importlib import util

    folder = os.path.join(os.path.dirname(HERE), "inside")
    spec = util.spec_from_file_location(
        "tidyprof_inside", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["tidyprof_inside"] = module
    spec.loader.exec_module(module)
    return module


def note_old_python():  # type: ignore[no-untyped-def]
    """Create an empty file that shows why nothing was recorded."""
    import json

    name = "python_%d.%d" % sys.version_info[:2]  # noqa: UP031
    try:  # noqa: SIM105
        open(os.path.join(json.loads(os.environ["TIDYPROF_RUN"])["out"], name), "w").close()
    except (IOError, OSError, ValueError):  # noqa: UP024
        pass  # contextlib.suppress is younger than some Pythons


def run_hidden():  # type: ignore[no-untyped-def]
    """Run the sitecustomize module that Python would import without this folder."""
    try:
        from importlib import machinery, util
    except ImportError:  # Python 2
        return
    # Child processes find this folder through PYTHONPATH, but this program must not see it.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    spec = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("TIDYPROF_RUN"):
    if sys.version_info >= OLDEST:
        load_hooks().wait_for_torch()
    else:
        note_old_python()
run_hidden()
