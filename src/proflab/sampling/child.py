"""The sampler's own process: `python -m proflab.sampling.child FILE NOTES SECONDS PID`.

It says in one line of JSON on its standard output that it has begun, samples until something comes or ends on its
standard input, or its parent is gone, and says in another line what it wrote.
"""

from __future__ import annotations

import json
import os
import platform
import select
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from proflab.sampling.gpus import open_gpus
from proflab.sampling.host_source import HostSource
from proflab.sampling.loop import sample_until
from proflab.sampling.readings import HEADER, Source, SourceUnavailable


def main(arguments: list[str]) -> int:
    """Sample; returns 0, or 2 after a line with `error` where nothing can be sampled or written."""
    log, notes, every_s, root = Path(arguments[0]), Path(arguments[1]), float(arguments[2]), int(arguments[3])
    parent = _own_output()
    sources, facts = open_sources(root)
    facts |= {"every_s": every_s, "started": datetime.now(UTC).isoformat(timespec="seconds")}
    if not sources:
        return _fail(parent, f"nothing can be sampled here: {facts['no_host']}; {facts['no_gpu']}")
    try:
        # Unbuffered, so that what was sampled is in the file when the process is killed.
        with log.open("wb", buffering=0) as file:
            file.write(f"{HEADER}\n".encode())
            notes.write_text(json.dumps(facts, indent=2) + "\n")
            _say(parent, {"began": facts})
            begin = time.process_time()
            tally = sample_until(_parent_is_done(), sources, lambda text: file.write(text.encode()), every_s)
        facts |= {
            "samples": tally.samples,
            "skipped": tally.skipped,
            "own_cpu_s": round(time.process_time() - begin, 4),
        }
        facts["failed"] = {name: count for source in sources for name, count in source.failed.items()}
        notes.write_text(json.dumps(facts, indent=2) + "\n")
    except OSError as error:
        return _fail(parent, f"{log}: can't be written ({error.strerror})")
    finally:
        for source in sources:
            source.close()
    _say(parent, {"ended": facts})
    return 0


def open_sources(root: int) -> tuple[list[Source], dict[str, Any]]:
    """What can be sampled here, and notes on it: `sources`, `gpus`, and `no_gpu` or `no_host` with the reason."""
    facts: dict[str, Any] = {"host": platform.node(), "process": root, "cores": os.cpu_count()}
    sources: list[Source] = []
    try:
        sources.append(HostSource(root))
    except SourceUnavailable as reason:
        facts["no_host"] = str(reason)
    gpus, reason = open_gpus()
    if gpus is not None:
        sources.append(gpus)
    else:
        facts["no_gpu"] = reason
    facts |= {"sources": [source.name for source in sources], "gpus": 0 if gpus is None else len(gpus.devices)}
    return sources, facts


def _own_output() -> TextIO:
    """The way to the parent; what libraries print goes to standard error instead."""
    parent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return parent


def _parent_is_done() -> Callable[[float], bool]:
    """Waits so many seconds at most and returns whether the parent said so, closed its end, or is gone.

    Processes that the parent forked hold the other end open too, so that its closing alone would not do.
    """
    parent = os.getppid()
    return lambda seconds: bool(select.select([sys.stdin], [], [], seconds)[0]) or os.getppid() != parent


def _say(parent: TextIO, message: dict[str, Any]) -> None:
    try:
        print(json.dumps(message), file=parent, flush=True)
    except BrokenPipeError:  # the parent was killed; the file is whole
        return


def _fail(parent: TextIO, reason: str) -> int:
    _say(parent, {"error": reason})
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
