"""Entry point of `python -m cifar_train`."""

from cifar_train.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
