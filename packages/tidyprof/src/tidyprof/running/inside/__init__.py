"""The hooks of `tidyprof run` in a program that imports torch.

The hooks run in the program's Python, which must be 3.10 or newer. The hooks don't import anything
else from tidyprof.

The module `imports` waits for torch, and `hooks` connects the other modules to torch. The module
`steps` finds the steps of the program, `parts` measures the time in each part of a step, and
`recorder` times and traces some steps. The module `job` measures the whole job, and `files` writes
the results. The module `whose` distinguishes errors in the hooks from exceptions of the program.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType


def wait_for_torch() -> None:
    """Install the hooks as soon as the program has imported torch."""
    from tidyprof_inside.imports import call_after_import

    call_after_import("torch", start)


def start(torch: ModuleType) -> None:
    """Install the hooks. If the installation fails, print one line and let the program continue."""
    from tidyprof_inside.whose import is_of_program

    try:
        from tidyprof_inside.hooks import Hooks

        asked = json.loads(os.environ["TIDYPROF_RUN"])
        os.makedirs(asked["out"], exist_ok=True)
        # This file shows the command that the program imported torch, even if the program ran no
        # steps.
        open(os.path.join(asked["out"], "torch_imported"), "w").close()
        Hooks(torch, asked).install()
    except Exception as error:
        if is_of_program(error):
            raise
        print(f"tidyprof run: no hooks: {type(error).__name__}: {error}", file=sys.stderr)
