"""Install the hooks into torch. The hooks replace some functions and record events.

Every hook forwards its arguments and its result. If a hook fails, it reports the error in one line,
and all hooks stop. If the program raises an exception within a hook, the exception reaches the
program.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tidyprof_inside.imports import call_after_import
from tidyprof_inside.job import Job
from tidyprof_inside.parts import BETWEEN, REST, Parts
from tidyprof_inside.recorder import DONE, Recorder
from tidyprof_inside.whose import is_of_program

MARK, OPTIMIZER, BACKWARD, MODULE = "mark", "optimizer", "backward", "module"
BETTER = (MODULE, BACKWARD, OPTIMIZER, MARK)
"""Kinds of events that can mark steps. Once an event of one kind occurs, the kinds before it in
this list no longer count.
"""

PROFILERS = (
    "_prepare_profiler",
    "_enable_profiler",
    "_enable_profiler_legacy",
    "_enable_execution_trace_observer",
)
"""Functions in torch that every operator profiler calls when it starts."""

SAVES = {
    "torch": ("save",),
    "torch.distributed.checkpoint": ("save", "async_save"),
    "safetensors.torch": ("save_file", "save_model"),
}
"""A mapping from a module to its functions that write checkpoints."""

LISTENING = (REST, BETWEEN, "optimizer")
"""The parts in which the hooks must observe the next module call."""


class State:
    """The state of the wrapper around module calls. `listens` is True if the hooks must observe the
    next module call.
    """

    __slots__ = ("listens",)

    def __init__(self) -> None:
        self.listens = True


class Hooks:
    """All hooks of one process. The hooks stay installed until the process ends, because removing
    them would cause recompilation.
    """

    def __init__(self, torch: ModuleType, asked: dict[str, Any]) -> None:
        """Prepare the hooks. `asked` contains the options of the command."""
        self.torch, self.asked = torch, asked
        self.is_compiling = torch.compiler.is_dynamo_compiling
        self.is_off = self.is_saving = False
        self.is_mark_found = not asked["mark"]
        self.before_step: str | None = None
        self.state = State()
        self.call_module = torch.nn.Module.__call__
        self.renew()

    def renew(self) -> None:
        """Discard all previous measurements."""
        self.job = Job(self.asked.get("launched_ns") or time.time_ns())
        self.parts = Parts(self.torch)
        self.recorder = Recorder(self.torch, self.asked, self.parts, self.job)
        self.state.listens = True

    # Installation

    def install(self) -> None:
        """Install the hooks in this process. Forked child processes inherit them."""
        torch = self.torch
        leave_uncompiled(torch, self.visit, with_calls=True)
        optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim deletes its name
        optimizers.register_optimizer_step_pre_hook(self.uncompiled(self.before_optimizer))
        optimizers.register_optimizer_step_post_hook(self.uncompiled(self.after_optimizer))
        self.wrap(
            torch.utils.data.dataloader._BaseDataLoaderIter,
            "__next__",
            functools.partial(self.enter, "data"),
            self.after_data,
        )
        self.wrap(
            torch.autograd,
            "backward",
            functools.partial(self.enter, "backward"),
            self.after_backward,
        )
        self.wrap_calls()
        self.wrap_profilers()
        for module, names in SAVES.items():
            call_after_import(module, functools.partial(self.wrap_saves, names))
        if self.asked["mark"]:
            self.wrap(torch.autograd.profiler.record_function, "__enter__", self.before_range)
        atexit.register(self.visit, self.close)
        # A forked child process runs different steps or none, and isn't part of its parent's trace.
        os.register_at_fork(after_in_child=functools.partial(self.visit, self.renew))

    def wrap_profilers(self) -> None:
        """Intercept the start of any profiler, because only one can run at a time."""
        autograd = self.torch.autograd
        own = self.torch._C
        legacy = sys.modules.get("torch.autograd.profiler_legacy")
        # Don't import this module, because it imports modules that the program may have replaced.
        newer = sys.modules.get("torch.profiler.profiler")
        for module in (autograd, autograd.profiler, legacy, newer, own._autograd, own._profiler):
            for name in PROFILERS:
                if hasattr(module, name):
                    self.wrap(module, name, self.before_profiler)

    def wrap_saves(self, names: tuple[str, ...], module: ModuleType) -> None:
        """Intercept the start and the end of each call that writes a checkpoint."""
        for name in names:
            if hasattr(module, name):
                self.wrap(module, name, self.before_save, self.after_save)

    def wrap(
        self,
        owner: Any,
        name: str,
        before: Callable[..., Any] | None = None,
        after: Callable[..., Any] | None = None,
    ) -> None:
        """Replace a function.

        The function `before` receives the first argument. The function `after` receives the first
        argument and the result of `before`. The first argument is None if there are no positional
        arguments.
        """
        original = getattr(owner, name)
        is_compiling, visit = self.is_compiling, self.visit

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            # torch.compile treats this condition as a constant, so it compiles only the original
            # function.
            if is_compiling():
                return original(*args, **kwargs)
            first = args[0] if args else None
            noted = visit(before, first) if before else None
            try:
                return original(*args, **kwargs)
            finally:
                if after:
                    visit(after, first, noted)

        leave_uncompiled(self.torch, wrapper)
        setattr(owner, name, wrapper)

    def uncompiled(self, hook: Callable[..., None]) -> Callable[..., None]:
        """Return an optimizer hook that does nothing while torch.compile compiles the step."""
        is_compiling, visit = self.is_compiling, self.visit

        def call(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not is_compiling():
                visit(hook, optimizer)

        leave_uncompiled(self.torch, call)
        return call

    def wrap_calls(self) -> None:
        """Replace the module call with an equivalent function that doesn't add a stack frame.

        An extra frame could exceed Python's recursion limit, because modules may be nested as
        deeply as Python allows. If torch.profiler records call stacks, it reads the variable `self`
        from this function's frame.
        """
        module = self.torch.nn.Module
        original = module.__call__
        if original.__code__.co_names != ("_compiled_call_impl", "_call_impl"):
            self.recorder.notes.append(
                "This PyTorch release calls modules differently, so module calls aren't recorded."
            )
            return
        self.call_module = self.module_call(original)
        # A program may pickle one of these functions under the name of the other.
        module.__call__ = module._wrapped_call_impl = self.call_module

    def module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the replacement for `torch.nn.Module.__call__`."""
        is_compiling, state, visit = self.is_compiling, self.state, self.visit
        before, after = self.before_call, self.after_call

        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(self, *args, **kwargs)
            if not state.listens:
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*args, **kwargs)
                return self._call_impl(*args, **kwargs)
            noted = visit(before, self)
            try:
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*args, **kwargs)
                return self._call_impl(*args, **kwargs)
            finally:
                if noted is not None:
                    visit(after, noted)

        return call

    # Safety

    def visit(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do the work of a hook and return its result.

        If an error occurs, stop all hooks and return None.
        """
        if self.is_off:
            return None
        try:
            return work(*args)
        except BaseException as error:
            self.give_up(error)
            if is_of_program(error):
                raise
            return None

    def give_up(self, error: BaseException) -> None:
        """Stop all hooks and the profiler, and print the reason."""
        self.is_off, self.state.listens = True, False
        self.recorder.stage = DONE
        # Don't print exceptions of the program, because the program itself reports them.
        reason = "" if is_of_program(error) else f": {type(error).__name__}: {error}"
        with contextlib.suppress(Exception):  # the profiler may be what failed
            self.recorder.drop_trace()
        with contextlib.suppress(Exception):  # standard error may be closed
            print(f"tidyprof run: hooks are off{reason}", file=sys.stderr)

    def close(self) -> None:
        """Save the results when the program ends."""
        self.recorder.close()

    # Events

    def is_source(self, source: str) -> bool:
        """Return True if events from this source mark the steps. A better source restarts the
        recording.

        After the recording is complete, only the first optimizer step restarts it, because the
        recording may contain an initial validation or parts of a large batch.
        """
        if self.asked["mark"] and source != MARK:
            return False
        known = self.recorder.source
        if source == known:
            return True
        if known and BETTER.index(source) < BETTER.index(known):
            return False
        is_done = self.recorder.stage == DONE
        if is_done and (source, known) not in ((OPTIMIZER, MODULE), (OPTIMIZER, BACKWARD)):
            return False
        self.recorder.reset(source, last=source in (OPTIMIZER, BACKWARD))
        return True

    def enter(self, part: str, _: Any = None) -> str | None:
        """Record that the host enters this part. Return the previous part for `leave`."""
        recorder = self.recorder
        if recorder.is_due:
            recorder.catch_up()
        if not self.is_mark_found:
            self.find_mark()
        if recorder.stage == DONE:
            return None
        before = self.parts.enter(part)
        if before is not None:
            self.state.listens = False
        return before

    def leave(self, part: str | None) -> None:
        """Record that the host returns to this part."""
        self.parts.leave(part)
        self.state.listens = self.parts.part in LISTENING
        if self.recorder.is_due:
            self.recorder.catch_up()

    def before_optimizer(self, optimizer: Any) -> None:
        """Record that an optimizer starts its step."""
        self.before_step = self.enter("optimizer")
        # Some optimizers, such as LBFGS, call the model within their step.
        self.state.listens = True

    def after_optimizer(self, optimizer: Any) -> None:
        """Record that an optimizer ends its step."""
        if self.parts.part == "optimizer" and self.parts.thread == threading.get_ident():
            is_within = self.before_step == "backward"
            self.leave("backward" if is_within else BETWEEN)
        if self.is_source(OPTIMIZER):
            self.recorder.event(id(optimizer), type(optimizer).__name__)

    def after_data(self, _: Any, before: str | None) -> None:
        """Record that a DataLoader has returned a batch."""
        self.leave(None if before is None else BETWEEN)

    def after_backward(self, _: Any, before: str | None) -> None:
        """Record that a backward pass has ended."""
        # Some optimizers, such as LBFGS, evaluate the loss several times per step. After such a
        # backward pass, the host returns to the optimizer.
        after = before if before == "optimizer" else REST
        self.leave(None if before is None else after)
        self.recorder.backwards += self.recorder.stage != DONE
        if self.is_source(BACKWARD):
            self.recorder.event(BACKWARD, "backward")

    def before_call(self, module: Any) -> tuple[str | None, int] | None:
        """Record a call to an outermost module.

        Return None if the host stays in the forward pass. If the host enters the forward pass,
        return the previous part, and the start time if the call has no gradients.
        """
        if self.parts.thread not in (None, threading.get_ident()):
            return None
        has_gradients = self.torch.is_grad_enabled()
        began = 0 if has_gradients else time.time_ns()
        if has_gradients:
            self.job.begin_training()
        if self.recorder.source in ("", MODULE):
            if self.is_source(MODULE):
                self.recorder.event(id(module), type(module).__name__)
            before = self.enter("forward")
            self.state.listens = False
            return before, began
        # If an optimizer evaluates the loss several times per step, the host returns to the
        # optimizer after the call.
        is_staying = has_gradients and self.parts.part != "optimizer"
        before = self.enter("forward")
        self.state.listens = False
        return None if is_staying else (before, began)

    def after_call(self, noted: tuple[str | None, int]) -> None:
        """Record that a module call has ended."""
        before, began = noted
        self.leave(before)
        self.state.listens = True
        if began:
            self.job.end_validation(began)

    def before_profiler(self, _: Any) -> None:
        """Handle the start of a profiler, which may belong to the hooks or to the program."""
        if not self.recorder.is_beginning:
            self.recorder.leave_alone(
                "The program runs its own profiler, so the hooks recorded times but no trace."
            )

    def before_save(self, _: Any) -> int | None:
        """Return the start time of a checkpoint, or None inside another function that saves."""
        if self.is_saving or self.parts.thread not in (None, threading.get_ident()):
            return None
        self.is_saving = True
        return time.time_ns()

    def after_save(self, _: Any, began: int | None) -> None:
        """Record that a checkpoint was written."""
        if began is not None:
            self.is_saving = False
            self.job.note("checkpoints", began)

    # The function or range that --step-marker names

    def before_range(self, range_: Any) -> None:
        """Check whether a range that starts is a step marker."""
        if range_.name == self.asked["mark"]:
            self.marked()

    def marked(self, _: Any = None) -> None:
        """Record the start of the function or range that --step-marker names."""
        if self.is_source(MARK):
            self.recorder.event(MARK, self.asked["mark"])

    def find_mark(self) -> None:
        """Wrap the function that --step-marker names, once the program has defined it."""
        owner_and_name = function_named(self.asked["mark"])
        if owner_and_name is not None:
            self.is_mark_found = True
            self.wrap(*owner_and_name, self.marked)


def leave_uncompiled(
    torch: ModuleType, function: Callable[..., Any], with_calls: bool = False
) -> None:
    """Prevent torch.compile from compiling a hook function, which would cause another graph break.

    - with_calls: whether to also skip the functions that this function calls.
    """
    frames = sys.modules["torch._C"]._dynamo.eval_frame
    code = function.__code__
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        strategy = frames._FrameExecStrategy(skip, skip if with_calls else default)
        frames.set_code_exec_strategy(code, strategy)
    elif hasattr(frames, "skip_code"):  # before PyTorch 2.6
        frames.skip_code(code)


def function_named(name: str) -> tuple[Any, str] | None:
    """Return the object that contains a function, and the function's name in this object. Return
    None if the function doesn't exist yet.

    A name such as `train_step` or `Trainer.train_step` refers to the script itself. A name such as
    `package.module.function` refers to a module.
    """
    *path, last = name.split(".")
    # The module is the longest prefix that names a module. The rest of the path consists of
    # classes.
    modules = [".".join(path[:length]) for length in range(len(path), 0, -1)]
    module_name = next((module for module in modules if module in sys.modules), "__main__")
    owner: Any = sys.modules[module_name]
    for attribute in path[len(module_name.split(".")) if module_name in modules else 0 :]:
        owner = getattr(owner, attribute, None)
    return (owner, last) if callable(getattr(owner, last, None)) else None
