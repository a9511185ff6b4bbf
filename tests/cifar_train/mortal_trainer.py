"""The trainer with small models, killed as soon as it has met the other ranks."""

import os
import signal

import torch.distributed

from cifar_train import cli


def die(*_, **__):
    """What a scheduler or a full memory does to a process."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.distributed.init_process_group = die
    raise SystemExit(cli.main())
