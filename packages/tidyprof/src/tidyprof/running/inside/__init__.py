"""The hooks of `tidyprof run` in a program that imports torch.

They run in that program's Python, which must be 3.10 or newer. They import nothing else of
tidyprof.

`imports` waits for torch, and `hooks` ties everything to it. `steps` finds out what a step of the
program is, `parts` keeps the time of its parts, `recorder` times and traces some steps, `job` keeps
the time of the whole job, and `files` writes what they found. `whose` separates
errors of the hooks from exceptions of the program.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType


def wait_for_torch() -> None:
    """Hook into torch as soon as the program has imported it."""
    from tidyprof_inside.imports import call_after_import

    call_after_import("torch", start)


def start(torch: ModuleType) -> None:
    """Hook into torch. An error of the hooks becomes a line, and the program continues."""
    from tidyprof_inside.whose import is_of_program

    try:
        from tidyprof_inside.hooks import Hooks

        asked = json.loads(os.environ["TIDYPROF_RUN"])
        os.makedirs(asked["out"], exist_ok=True)
        # The command can then tell a program without steps from one without torch.
        open(os.path.join(asked["out"], "torch_imported"), "w").close()
        Hooks(torch, asked).install()
    except Exception as error:
        if is_of_program(error):
            raise
        print(f"tidyprof run: no hooks: {type(error).__name__}: {error}", file=sys.stderr)
