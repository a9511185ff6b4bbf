"""The trainer's command line with small models, for tests that need processes of their own."""

from cifar_train import cli, models
from tests.cifar_train.tiny_models import TINY_MODELS

if __name__ == "__main__":
    models.MODELS.update(TINY_MODELS)
    raise SystemExit(cli.main())
