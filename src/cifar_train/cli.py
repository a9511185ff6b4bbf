"""The trainer's command-line interface."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cifar_train.config import TrainConfig, parse
from tidyprof.errors import UserError
from tidyprof.standard_streams import tell

SIGTERM_EXIT_CODE = 143
"""Exit code that a shell reports for a process that SIGTERM ended (128 + 15)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trainer and return its exit code.

    - 0: The run succeeded.
    - 2: The run failed with an error that the user can fix.
    - 130: The user pressed Ctrl-C.
    - SIGTERM_EXIT_CODE: SIGTERM ended the run.
    """
    try:
        config = parse(arguments)
        if not config.download_only:
            return _train(config)
        from cifar_train.data.cifar100 import download

        download(config.data_path)
        return 0
    except (UserError, OSError) as error:
        tell(f"error: {error}")
        return 2
    except RuntimeError as error:
        if not str(error).startswith("DataLoader"):
            raise
        tell(
            f"error: a data loader worker died ({str(error).split('. ')[0]}). Likely cause:"
            " memory ran out, or /dev/shm is full (df -h /dev/shm). Next step: free some space,"
            " or lower --num-workers."
        )
        return 2
    except KeyboardInterrupt:
        tell("cifar_train: stopped by Ctrl-C")
        return 130


def _train(config: TrainConfig) -> int:
    # torch reads this variable during import. Without it, warnings about lost connections contain
    # 40 lines of C++ frames, which hide the trainer's own message.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from cifar_train.train import run

    result = run(config)
    if result.summaries[0].rank == 0:
        print(result.text)
    if result.stop_reason:
        tell(f"cifar_train: stopped by {result.stop_reason} after {len(result.records)} steps")
        return SIGTERM_EXIT_CODE
    return 0
