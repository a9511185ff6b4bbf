"""Adam as it runs on a GPU: many tensors in one operator."""

from __future__ import annotations

from typing import Any

import torch

from gpumodel.recording.recorder import OperatorRecorder


class DeviceAdam:
    """torch.optim.Adam in the form that PyTorch takes on a GPU, with its state as after some steps.

    foreach is the default there, and `fused` needs tensors on a GPU, so its operators are written down
    from its source (https://github.com/pytorch/pytorch/blob/main/torch/optim/adam.py, _fused_adam).
    """

    def __init__(self, model: Any, fused: bool, recorder: OperatorRecorder) -> None:
        self._adam = torch.optim.Adam(model.parameters(), foreach=True)
        self._fused = fused
        self._recorder = recorder
        self.param_groups = self._adam.param_groups
        for parameter in model.parameters():
            self._adam.state[parameter] = {
                "step": torch.ones((), device="meta" if fused else "cpu"),
                "exp_avg": torch.empty_like(parameter),
                "exp_avg_sq": torch.empty_like(parameter),
            }

    def step(self, scale: Any = None, found: Any = None) -> None:
        """Update the parameters; a fused update takes the gradient scaler's scale and its finding."""
        with self._recorder.group("Optimizer.step#Adam.step"):
            if self._fused:
                self._fused_step(scale, found)
            else:
                self._adam.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients."""
        with self._recorder.group("Optimizer.zero_grad#Adam.zero_grad"):
            self._adam.zero_grad(set_to_none=set_to_none)

    def _fused_step(self, scale: Any, found: Any) -> None:
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        state = [self._adam.state[parameter] for parameter in parameters]
        steps = [own["step"] for own in state]
        torch.ops.aten._foreach_add_(steps, 1)
        lists = [parameters, [p.grad for p in parameters], [s["exp_avg"] for s in state]]
        lists += [[s["exp_avg_sq"] for s in state], steps]
        inputs = [tensor for tensors in lists for tensor in tensors]
        extra = [tensor for tensor in (scale, found) if tensor is not None]
        scalars = {"lists": tuple(len(tensors) for tensors in lists)}
        self._recorder.add("aten::_fused_adam_", [*inputs, *extra], parameters, scalars=scalars)
        if found is not None:
            torch.ops.aten._foreach_sub_(steps, [found] * len(steps))
