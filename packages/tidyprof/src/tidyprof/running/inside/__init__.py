"""What `tidyprof run` puts into a program that imports torch. It runs in that program's Python,
from 3.10 on, and knows nothing of the rest of tidyprof.

`steps` finds out what a step of the program is, `parts` keeps the time of its parts, `recorder`
times and traces some steps, `files` writes what they found, and `hooks` ties all of it to torch.
"""

from __future__ import annotations

import json
import os
from types import ModuleType


def start(torch: ModuleType) -> None:
    """Hook into torch, which has just been imported."""
    from tidyprof_inside.hooks import Hooks

    asked = json.loads(os.environ["TIDYPROF_RUN"])
    os.makedirs(asked["out"], exist_ok=True)
    # So that the command can tell a program without steps from one that never came here.
    open(os.path.join(asked["out"], "torch_imported"), "w").close()
    Hooks(torch, asked).install()
