"""The trainer's command line with small models, for tests that need processes of their own."""

from cifar_train import models
from cifar_train.cli import main
from tests.cifar_train.tiny_models import TINY_MODELS

models.MODELS.update(TINY_MODELS)

if __name__ == "__main__":
    raise SystemExit(main())
