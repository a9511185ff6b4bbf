"""Everything one run needs, put together in the right order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cifar_train import pathologies
from cifar_train.config import TrainConfig
from cifar_train.data.loaders import Loaders, build_loaders, resolve_data_source
from cifar_train.errors import UserError
from cifar_train.hooks import Hook
from cifar_train.launch.ranks import Launch
from cifar_train.models import build_model

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass
class Job:
    """The parts of a run that the loop uses; pathologies may exchange any of them.

    planned_steps -- what max_steps, max_epochs and the data allow together.
    to_device     -- moves (images, labels) as the loader gives them to the device.
    raw_model     -- the model without compiler or DistributedDataParallel around it.
    """

    config: TrainConfig
    launch: Launch
    device: torch.device
    loaders: Loaders
    raw_model: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    autocast: Callable[[], AbstractContextManager]
    criterion: nn.Module
    to_device: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    input_dtype: torch.dtype
    memory_format: torch.memory_format
    notes: list[str] = field(default_factory=list)
    fault_hooks: list[Hook] = field(default_factory=list)

    @property
    def planned_steps(self) -> int:
        """Optimizer steps this run will take."""
        return min(self.config.max_steps, self.config.max_epochs * self.loaders.steps_per_epoch)


def build_job(
    config: TrainConfig,
    launch: Launch,
    device: torch.device,
    grouped: bool = False,
    make_model: Callable[[str], nn.Module] = build_model,
) -> Job:
    """Build data, model and optimizer for one rank. `grouped` wraps the model for its process group.

    Weights are equal on all ranks; transforms and order differ. Raises UserError.
    """
    import torch

    from cifar_train import precision

    _refuse_single_image(config)
    torch.manual_seed(config.seed)
    loaders = build_loaders(config, resolve_data_source(config), launch.rank, launch.world_size, device.type)
    memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
    raw_model = make_model(config.model).train()
    raw_model = pathologies.apply_to_model(config.pathology, raw_model)
    dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
    raw_model = raw_model.to(device=device, dtype=dtype, memory_format=memory_format)
    autocast, scaler = precision.mixed_precision(config, device)
    job = Job(
        config=config,
        launch=launch,
        device=device,
        loaders=loaders,
        raw_model=raw_model,
        model=_wrap(raw_model, config, device, grouped),
        optimizer=_optimizer(raw_model, config),
        scaler=scaler,
        autocast=autocast,
        criterion=torch.nn.CrossEntropyLoss(),
        to_device=_copier(device),
        input_dtype=dtype,
        memory_format=memory_format,
        notes=precision.notes(config, device),
    )
    pathologies.apply_to_job(config.pathology, job)
    torch.manual_seed(config.seed + launch.rank)
    return job


def _refuse_single_image(config: TrainConfig) -> None:
    """PyTorch itself would end in a traceback, in the middle of the first step."""
    if config.model == "resnet" and config.batch_size == 1:
        raise UserError(
            "--batch-size 1 leaves resnet's last normalisation one value per channel, which has no spread: give at "
            "least --batch-size 2, or --model vit"
        )


def _wrap(raw_model: nn.Module, config: TrainConfig, device: torch.device, grouped: bool) -> nn.Module:
    import torch

    model = raw_model
    if grouped:
        model = torch.nn.parallel.DistributedDataParallel(
            model,
            device_ids=None if device.type == "cpu" else [device.index],
            # A model whose gradient is cut would otherwise stop in the second step.
            find_unused_parameters=config.pathology == "broken-grad",
        )
    return torch.compile(model) if config.compile else model


def _optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    import torch

    return torch.optim.Adam(model.parameters(), fused=True if config.fused_optimizer else None)


def _copier(device: torch.device) -> Callable[..., Any]:
    def to_device(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    return to_device


def prepare_run_folder(wanted: Path | None, default_name: str) -> Path:
    """Make the folder for results and prove that it can be written. Raises UserError."""
    folder = wanted or Path("runs") / "cifar_train" / default_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"1" * 4096)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}); give another --run-dir or free some space"
        ) from error
    return folder
