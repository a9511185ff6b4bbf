"""Runs many small programs in children of one process that has imported torch, with and without the
hooks of `tidyprof run`.

    python forked.py FOLDER HOOKS PROGRAM ...

Each program runs in a copy of its own of the folder. A line of JSON per program has its exit code
and standard output.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path


def run(folder: Path, hooks: str, program: str) -> dict[str, object]:
    """Return how a program ended."""
    # A TemporaryDirectory would be removed at the end of the child as well.
    place = Path(tempfile.mkdtemp())
    own = shutil.copytree(folder, place / "own")
    child = os.fork()
    if not child:
        _be(own, hooks, program)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    traces = [*own.glob("out/**/trace_rank*.json.gz")]
    output = (own / "output").read_text()
    shutil.rmtree(place)
    return {"program": program, "code": code, "output": output, "traces": len(traces)}


def _be(folder: Path, hooks: str, program: str) -> None:
    """Become the program, and end as Python would."""
    os.chdir(folder)
    for name, number in (("errors", 2), ("output", 1)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    if hooks:
        asked = {"out": str(folder / "out"), "after": 30, "steps": 3, "stacks": False}
        os.environ["TIDYPROF_RUN"] = json.dumps({**asked, "shapes": False, "mark": ""})
        sys.path.insert(0, hooks)
        __import__("sitecustomize")
    sys.argv = program.split()
    sys.path.insert(0, str(folder))
    code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


def main() -> None:
    """Run the programs."""
    import torch

    torch.set_num_threads(1)
    folder, hooks, *programs = sys.argv[1:]
    for program in programs:
        print(json.dumps(run(Path(folder), hooks, program)), flush=True)


if __name__ == "__main__":
    main()
