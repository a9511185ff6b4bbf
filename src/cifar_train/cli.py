"""The command line: options in, exit code out."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from cifar_train.config import TrainConfig, parse
from cifar_train.console import keep_stdout_for_json
from cifar_train.launch.ranks import LostRankError
from tidyprof.errors import UserError
from tidyprof.standard_streams import tell

if TYPE_CHECKING:
    from cifar_train.train import Result

SIGTERM_EXIT_CODE = 143
"""128 + 15, as a shell reports a process that SIGTERM ended."""

CANNOT_WRITE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EISDIR,
    errno.EPERM,
)
"""Errors of a folder for results that is full, protected or occupied; all other errors are bugs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trainer; returns 0 for success, 1 for a lost rank, 2 for an error that the user can
    mend, 130 for Ctrl-C and SIGTERM_EXIT_CODE for SIGTERM.
    """
    try:
        config = parse(arguments)
        if config.json:
            keep_stdout_for_json()
        if config.download_only:
            return _download(config)
        return _train(config)
    except LostRankError as error:
        tell(f"cifar_train: {error}")
        return 1
    except UserError as error:
        tell(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        tell("cifar_train: stopped by Ctrl-C")
        return 130
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        where = error.filename2 or error.filename or "writing results"
        tell(f"error: {where}: {error.strerror}; free some space or give another --run-dir")
        return 2


def _download(config: TrainConfig) -> int:
    from cifar_train.data.download import download_cifar100

    download_cifar100(config.data_path)
    return 0


def _train(config: TrainConfig) -> int:
    # torch reads this when it is imported. Its warnings about lost connections have 40 lines of C++
    # frames, which would hide our message.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from cifar_train.train import run

    result = run(config)
    if result.summaries[0].rank == 0:
        _print(result, config)
    if result.stop_reason:
        done = f"{len(result.records)} steps; results so far are in {result.folder}"
        tell(f"cifar_train: stopped by {result.stop_reason} after {done}")
        return SIGTERM_EXIT_CODE
    return 0


def _print(result: Result, config: TrainConfig) -> None:
    if config.json:
        summary = {
            "folder": str(result.folder),
            "files": [str(path) for path in result.files],
            "notes": result.notes,
            "checks": result.checks,
            "stopped_by": result.stop_reason,
            "ranks": [asdict(entry) for entry in result.summaries],
        }
        print(json.dumps(summary))
        return
    print(result.text)
    for check in result.checks:
        print(check)
