"""The hooks into torch: which of its functions are replaced, and how they are put back.

Every hook passes on its arguments and the result. An error in a hook is reported in a line, and
ends all hooks.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from tidyprof_inside.parts import BETWEEN, DECODE, REST, Parts
from tidyprof_inside.recorder import DONE, Recorder

MARK, REPLAY, OPTIMIZER, BACKWARD, MODULE = "mark", "replay", "optimizer", "backward", "module"
BETTER = (MODULE, BACKWARD, OPTIMIZER, REPLAY, MARK)
"""Kinds of event that can mark steps: once a later kind occurs, the earlier kind marks none."""

REPLAYS_ALONE = 8
"""Number of replays of CUDA or HIP graphs, with nothing else between them, from which the replays
are the steps: such a graph holds a whole step.
"""


class Calls(threading.local):
    """Whether this thread is within the call of a module."""

    is_inside = False


class Hooks:
    """All hooks of one process."""

    def __init__(self, torch: ModuleType, asked: dict[str, Any]) -> None:
        """asked -- what the command was asked for."""
        self.torch, self.asked = torch, asked
        self.undo: list[Callable[[], None]] = []
        self.again = 1
        self.calls = Calls()
        self.optimizer_hooks: list[Any] = []
        # Made once, since they are called in each step.
        self.tell_backward, self.tell_call = (
            self.guarded(self.after_backward),
            self.guarded(self.before_call),
        )
        self.tell_replay, self.tell_mark = (
            self.guarded(self.after_replay),
            self.guarded(self.marked),
        )
        self.renew()

    def renew(self) -> None:
        """Forget all that was seen."""
        self.parts = Parts(self.torch.autograd.profiler.record_function)
        self.recorder = Recorder(self.torch, self.asked, self.parts, self.done)
        self.calls.is_inside = False
        self.is_mark_found = False
        self.replays = 0

    # Putting in and taking out

    def install(self) -> None:
        """Hook in; once for a process and its children."""
        self.put_in()
        atexit.register(self.guarded(self.close))
        # A forked child makes other steps, or none, and has no part in its parent's trace.
        os.register_at_fork(after_in_child=self.guarded(self.renew))
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR2, self.guarded(self.record_again))

    def put_in(self) -> None:
        """Replace what is watched."""
        torch = self.torch
        self.hook_optimizers()
        self.wrap(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", self.around_data)
        self.wrap(torch.autograd, "backward", self.around_backward)
        self.wrap_calls()
        self.wrap(torch.cuda.graphs.CUDAGraph, "replay", self.around_replay)
        self.wrap(torch.profiler.profile, "start", self.around_profiler)
        self.wrap(torch.autograd.profiler.profile, "__enter__", self.around_profiler)
        if self.asked["mark"]:
            self.wrap(torch.autograd.profiler.record_function, "__enter__", self.around_range)

    def hook_optimizers(self) -> None:
        """Be called before and after each step of any optimizer."""
        optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim deletes its name
        if not self.optimizer_hooks:
            self.optimizer_hooks = [
                optimizers.register_optimizer_step_pre_hook(self.uncompiled(self.before_optimizer)),
                optimizers.register_optimizer_step_post_hook(self.uncompiled(self.after_optimizer)),
            ]
        self.undo.append(self.unhook_optimizers)

    def unhook_optimizers(self) -> None:
        """Take the hooks away. A compiled step keeps them: without its hooks it would be compiled
        anew.
        """
        if has_compiled():
            return
        for hook in self.optimizer_hooks:
            hook.remove()
        self.optimizer_hooks = []

    def uncompiled(self, hook: Callable[..., None]) -> Callable[..., None]:
        """The hook of an optimizer's step, which does nothing while torch.compile compiles that
        step.
        """
        is_compiling, safely = self.torch.compiler.is_dynamo_compiling, self.guarded(hook)

        def call(*args: Any) -> None:
            if not is_compiling() and self.undo:
                safely(*args)

        return call

    def wrap_calls(self) -> None:
        """Replace the call of a module. Most calls are within other calls and must cost next to
        nothing.

        torch's profiler takes the variable `self` out of this function's frame where it records
        call stacks.
        """
        original = self.torch.nn.Module.__call__
        is_compiling, calls, around = (
            self.torch.compiler.is_dynamo_compiling,
            self.calls,
            self.around_module,
        )

        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or calls.is_inside:
                return original(self, *args, **kwargs)
            return around(original, self, *args, **kwargs)

        self.replace(self.torch.nn.Module, "__call__", original, call)

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace an attribute by `around(original, ...)`."""
        original = getattr(owner, name)
        is_compiling = self.torch.compiler.is_dynamo_compiling

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            # torch.compile takes this for a constant, so that it compiles the original only.
            if is_compiling():
                return original(*args, **kwargs)
            return around(original, *args, **kwargs)

        self.replace(owner, name, original, wrapper)

    def replace(self, owner: Any, name: str, original: Any, wrapper: Any) -> None:
        """Set an attribute, until `remove`."""

        def put_back() -> None:
            # Another tool may have wrapped this wrapper; then it stays, and passes calls on.
            if vars(owner).get(name) is wrapper:
                setattr(owner, name, original)

        setattr(owner, name, wrapper)
        self.undo.append(put_back)

    def remove(self) -> None:
        """Put everything back."""
        undo, self.undo = self.undo, []
        for one in undo:
            one()

    def done(self) -> None:
        """All is recorded: take the hooks out. Where no optimizer took a step, that may have been a
        first validation before the training, or the parts of a large batch, so wait for an
        optimizer's first step. A compiled step that is under way would be compiled anew.
        """
        self.remove()
        source = self.recorder.source
        if source == MODULE or (source == BACKWARD and not has_compiled()):
            register = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
            first = register(self.guarded(self.begin_training))
            self.undo.append(first.remove)

    def begin_training(self, *_: Any) -> None:
        """Start anew at the first step of an optimizer after all was done."""
        self.remove()
        self.put_in()
        self.recorder.reset(OPTIMIZER, last=True)

    def guarded(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, but an error in it becomes one line and ends the hooks, and the
        program goes on.
        """

        @functools.wraps(work)
        def safely(*args: Any, **kwargs: Any) -> None:
            try:
                work(*args, **kwargs)
            except Exception as error:
                self.give_up(error)

        return safely

    def give_up(self, error: Exception) -> None:
        """Tell of an error of these hooks, which are gone from now on, and the profiler with
        them.
        """
        self.remove()
        self.recorder.stage = DONE
        with contextlib.suppress(Exception):  # it may be what failed
            self.recorder.drop_trace()
        print(f"tidyprof run: hooks are off: {type(error).__name__}: {error}", file=sys.stderr)

    def close(self) -> None:
        """The program ends."""
        self.recorder.close()

    def record_again(self, number: int, frame: FrameType | None) -> None:
        """The signal: time and trace once more, into a folder of its own."""
        if self.recorder.stage != DONE:
            return
        self.remove()
        self.again += 1
        self.asked = {**self.asked, "out": f"{self.asked['out']}.{self.again}"}
        self.renew()
        self.put_in()

    # What is seen

    def is_source(self, source: str) -> bool:
        """Whether steps come from here; a better source than the one so far begins anew."""
        if self.asked["mark"] and source != MARK:
            return False
        if source != REPLAY:
            self.replays = 0
        known = self.recorder.source
        if source == known:
            return True
        if known and BETTER.index(source) < BETTER.index(known):
            return False
        self.recorder.reset(source, last=source in (REPLAY, OPTIMIZER, BACKWARD))
        return True

    def enter(self, part: str) -> str | None:
        """Note that the host enters this part; returns the argument for `leave`."""
        try:
            self.recorder.catch_up()
            self.find_mark()
            return self.parts.enter(part)
        except Exception as error:
            self.give_up(error)
            return None

    def leave(self, part: str | None) -> None:
        """Note that the host is in that part again."""
        try:
            self.parts.leave(part)
        except Exception as error:
            self.give_up(error)

    def before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer begins its step."""
        self.enter("optimizer")

    def after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer ends its step."""
        if self.parts.part == "optimizer" and self.parts.thread == threading.get_ident():
            self.leave(BETWEEN)
        if self.is_source(OPTIMIZER):
            self.recorder.event(id(optimizer), type(optimizer).__name__)

    def around_data(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A DataLoader is asked for a batch."""
        before = self.enter("data")
        try:
            return original(*args, **kwargs)
        finally:
            self.leave(None if before is None else BETWEEN)

    def around_backward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A backward pass."""
        before = self.enter("backward")
        try:
            return original(*args, **kwargs)
        finally:
            # LBFGS and others evaluate their loss several times within the optimizer's step: after
            # such a backward pass the host is in the optimizer again.
            after = before if before == "optimizer" else REST
            self.leave(None if before is None else after)
            self.tell_backward()

    def after_backward(self) -> None:
        """A backward pass has ended."""
        self.recorder.backwards += 1
        if self.is_source(BACKWARD):
            self.recorder.event(BACKWARD, "backward")

    def around_replay(self, original: Callable[..., Any], graph: Any) -> Any:
        """A graph of recorded launches is launched again."""
        try:
            return original(graph)
        finally:
            self.tell_replay(graph)

    def after_replay(self, graph: Any) -> None:
        """A graph has been launched."""
        self.replays += 1
        if self.replays >= REPLAYS_ALONE and self.is_source(REPLAY):
            self.recorder.event(id(graph), "a graph")

    def around_module(
        self, original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A module's call that lies within no other call."""
        self.calls.is_inside = True
        before = self.part_of_call(module, args, kwargs)
        try:
            return original(module, *args, **kwargs)
        finally:
            self.calls.is_inside = False
            self.leave(before)

    def part_of_call(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        """The part to go back to after the call; None where the host stays in its forward pass."""
        if self.parts.thread not in (None, threading.get_ident()):
            return None
        if self.recorder.source in ("", MODULE):
            self.tell_call(module)
            return self.enter(DECODE if is_one_token(self.torch, args, kwargs) else "forward")
        if self.parts.part in (REST, BETWEEN):
            self.enter("forward")
            return None
        # Only an optimizer that evaluates its loss several times, such as LBFGS, calls a module in
        # its step; it goes on after the call.
        return self.enter("forward") if self.parts.part == "optimizer" else None

    def before_call(self, module: Any) -> None:
        """A module is called that no other module calls."""
        if self.is_source(MODULE):
            self.recorder.event(id(module), type(module).__name__)

    def around_profiler(
        self, original: Callable[..., Any], profiler: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A profiler begins: that of these hooks, or a profiler of the program."""
        if profiler is not self.recorder.profiler:
            self.guarded(self.recorder.leave_alone)()
        return original(profiler, *args, **kwargs)

    # The function or range that --step-marker names

    def around_range(
        self, original: Callable[..., Any], range_: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A range begins."""
        if range_.name == self.asked["mark"]:
            self.tell_mark()
        return original(range_, *args, **kwargs)

    def around_function(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The function that --step-marker names."""
        self.tell_mark()
        return original(*args, **kwargs)

    def marked(self) -> None:
        """The function or range that --step-marker names begins."""
        if self.is_source(MARK):
            self.recorder.event(MARK, self.asked["mark"])

    def find_mark(self) -> None:
        """Watch the function that --step-marker names, once the program has defined it."""
        if self.is_mark_found or not self.asked["mark"]:
            return
        owner_and_name = function_named(self.asked["mark"])
        if owner_and_name is not None:
            self.is_mark_found = True
            self.wrap(*owner_and_name, self.around_function)


def has_compiled() -> bool:
    """Whether torch.compile has compiled something in this process."""
    compiler = sys.modules.get("torch._dynamo.utils")
    return compiler is not None and bool(compiler.counters["frames"])


def function_named(name: str) -> tuple[Any, str] | None:
    """The owner of a function, and its name there: for `train_step` or `Trainer.train_step` in the
    script itself, or for `package.module.function`. None where there is no such function (yet).
    """
    *path, last = name.split(".")
    # The longest beginning that is a module counts; the rest of the path are classes in it.
    modules = [".".join(path[:length]) for length in range(len(path), 0, -1)]
    module_name = next((module for module in modules if module in sys.modules), "__main__")
    owner: Any = sys.modules[module_name]
    for attribute in path[len(module_name.split(".")) if module_name in modules else 0 :]:
        owner = getattr(owner, attribute, None)
    return (owner, last) if callable(getattr(owner, last, None)) else None


def is_one_token(torch: ModuleType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a model is called with one token of each sequence, as a language model is when it
    continues its text.
    """
    given = kwargs.get("input_ids", args[0] if args else None)
    if not isinstance(given, torch.Tensor) or given.dim() != 2 or given.is_floating_point():
        return False
    return bool(given.shape[1] == 1)
