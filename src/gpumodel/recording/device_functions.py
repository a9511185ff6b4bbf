"""What PyTorch does on a GPU, but not on meta tensors: autocast, attention kernels, gradient
scaling, fused Adam.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gpumodel.recording.recorder import OperatorRecorder

HALF_FUNCTIONS = frozenset(
    ("__matmul__", "__rmatmul__", "addbmm", "addmm", "baddbmm", "bmm", "conv2d", "linear", "matmul")
)
"""Functions that autocast runs in 16 bits: those of PyTorch's list that image classifiers use.

Source of this list and the next: https://docs.pytorch.org/docs/stable/amp.html, "CUDA Op-Specific
Behavior".
"""

FULL_FUNCTIONS = frozenset(
    (
        *(
            "__pow__",
            "__rpow__",
            "cosine_similarity",
            "cross_entropy",
            "cumsum",
            "exp",
            "group_norm",
            "layer_norm",
        ),
        *(
            "log",
            "log_softmax",
            "nll_loss",
            "norm",
            "normalize",
            "pow",
            "prod",
            "reciprocal",
            "rsqrt",
            "softmax",
            "sum",
        ),
    )
)
"""Functions that autocast runs in float32."""


class DeviceFunctions(TorchFunctionMode):
    """Autocast to `half` (None: no autocast), and scaled dot-product attention as one fused
    operator.

    Meta tensors have no autocast of their own, and PyTorch takes their attention apart into matrix
    products.
    """

    def __init__(self, recorder: OperatorRecorder, half: torch.dtype | None) -> None:
        super().__init__()
        self._recorder = recorder
        self._half = half
        self._weights: dict[int, torch.Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Cast the arguments as autocast would, then call."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._attend(*args, **kwargs)
        if self._half is None or self._explicit(name, kwargs):
            return func(*args, **kwargs)
        if name in HALF_FUNCTIONS and self._needs_cast(args, self._half):
            with self._recorder.group(f"aten::{name.strip('_')}", _tensors(args)):
                return func(*self._cast_all(args, self._half), **kwargs)
        if name in FULL_FUNCTIONS:
            return func(*self._cast_all(args, torch.float32), **kwargs)
        return func(*args, **kwargs)

    def __exit__(self, *error: Any) -> None:
        """Forget the weights that were cast, as autocast does at its end."""
        self._weights.clear()
        super().__exit__(*error)

    def _explicit(self, name: str, kwargs: dict) -> bool:
        return name in FULL_FUNCTIONS and kwargs.get("dtype") is not None

    def _needs_cast(self, args: tuple, wanted: torch.dtype) -> bool:
        return any(_castable(value, wanted) for value in args)

    def _cast_all(self, args: tuple, wanted: torch.dtype) -> tuple:
        return tuple(
            self._cast(value, wanted) if _castable(value, wanted) else value for value in args
        )

    def _cast(self, value: torch.Tensor, wanted: torch.dtype) -> torch.Tensor:
        if not (value.is_leaf and value.requires_grad and value.dtype is torch.float32):
            return value.to(wanted)
        # Autocast casts a weight once, however often it is used inside the context.
        if id(value) not in self._weights:
            self._weights[id(value)] = value.to(wanted)
        return self._weights[id(value)]

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """AOTriton's kernels on ROCm: flash attention in 16 bits without a mask, else the
        memory-efficient one (torch.nn.functional.scaled_dot_product_attention, see
        https://docs.pytorch.org/docs/stable/nn.functional.html).
        """
        tensors = (query, key, value)
        if self._half is not None:
            tensors = self._cast_all(tensors, self._half)
        if attn_mask is None and tensors[0].dtype is not torch.float32:
            flash = torch.ops.aten._scaled_dot_product_flash_attention
            return flash(*tensors, dropout_p, is_causal, False, scale=scale)[0]
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(*tensors, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


def _castable(value: Any, wanted: torch.dtype) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not wanted
    )


def _tensors(args: tuple) -> list[torch.Tensor]:
    return [value for value in args if isinstance(value, torch.Tensor)]


class MetaGradScaler:
    """The operators of torch.amp.GradScaler, which switches itself off where there is no GPU
    (https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling).

    A fused optimizer takes the scale and the check for infinities as arguments, so that nothing is
    read back to the host.
    """

    def __init__(self, enabled: bool, fused: bool) -> None:
        self._enabled = enabled
        self._fused = fused
        self._scale = torch.empty((), device="meta")
        self._growth = torch.empty((), dtype=torch.int32, device="meta")
        self._found: torch.Tensor | None = None

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale."""
        return loss * self._scale if self._enabled else loss

    def step(self, optimizer: Any) -> None:
        """Divide the gradients by the scale, look for infinities, and let the optimizer step."""
        if not self._enabled:
            optimizer.step()
            return
        gradients = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        inverse = (
            torch.full((), 1.0, device="meta")
            if self._fused
            else self._scale.double().reciprocal().float()
        )
        found = torch.full((), 0.0, device="meta")
        # GradScaler copies both values to each device that has gradients.
        copies = [value.to(device="meta", copy=True) for value in (found, inverse)]
        torch.ops.aten._amp_foreach_non_finite_check_and_unscale_(gradients, *copies)
        self._found = copies[0]
        if self._fused:
            optimizer.step(scale=self._scale, found=self._found)
        elif not self._found.item():
            optimizer.step()

    def update(self) -> None:
        """Grow or shrink the scale, by GradScaler's default factors (2.0, 0.5) and interval (2000
        steps).
        """
        if self._enabled:
            torch.ops.aten._amp_update_scale_(
                self._scale, self._growth, self._found, 2.0, 0.5, 2000
            )


class DeviceAdam:
    """torch.optim.Adam in the form that PyTorch takes on a GPU, with the state that it has after
    some steps.

    foreach is the default on a GPU. `fused` needs tensors on a GPU, so its operators are written
    down here from its source (https://github.com/pytorch/pytorch/blob/main/torch/optim/adam.py,
    _fused_adam).
    """

    def __init__(self, model: Any, fused: bool, recorder: OperatorRecorder) -> None:
        self._adam = torch.optim.Adam(model.parameters(), foreach=True)
        self._fused = fused
        self._recorder = recorder
        self.param_groups = self._adam.param_groups
        # Adam counts its steps on the CPU, unless it is fused.
        for parameter in model.parameters():
            self._adam.state[parameter] = {
                "step": torch.ones((), device="meta" if fused else "cpu"),
                "exp_avg": torch.empty_like(parameter),
                "exp_avg_sq": torch.empty_like(parameter),
            }

    def step(self, scale: Any = None, found: Any = None) -> None:
        """Update the parameters. A fused update takes the gradient scaler's scale, and whether it
        found an infinity.
        """
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
        parameters = [
            p for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
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
            # `found` is 1 where a gradient is infinite: then the step is taken back.
            torch.ops.aten._foreach_sub_(steps, [found] * len(steps))
