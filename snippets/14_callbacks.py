"""Time the parts of a step with a callback if a library owns the training loop.

    Trainer(..., callbacks=[for_transformers()])      the Trainer of transformers
    Trainer(..., callbacks=[for_lightning()])         the Trainer of Lightning

Save 14_instrument_me.py as instrument_me.py next to this file, and set STEP_TIMER as
that file describes. If a library has no hook between two parts, the two parts count as
one. For example, transformers has no hook between forward and backward. We tested these
callbacks with transformers 5.23, accelerate 1.15 and Lightning 2.6.
"""

from instrument_me import StepTimer


class Parts:
    """Step timing that both callbacks share."""

    timer = None

    def start(self, part):
        """Start a step. Logging and the wait for this step's batch belong to the
        previous step.
        """
        if self.timer:
            self.timer.step()
        self.timer = self.timer or StepTimer()
        self.timer(part)

    def enter(self, part):
        """Start a part, except during a check before training starts."""
        if self.timer:
            self.timer(part)

    def end(self):
        """End the last step and write the results."""
        self.timer.step()
        self.timer.close()
        self.timer = None


def for_transformers():
    from transformers import TrainerCallback

    class Callback(Parts, TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.start("forward_backward")

        def on_pre_optimizer_step(self, *_, **__):
            self.enter("optimizer")

        def on_step_end(self, args, state, control, **_):
            due = control.should_log or control.should_evaluate or control.should_save
            self.enter("log" if due else "data")

        on_log = on_evaluate = on_save = on_step_end

        def on_train_end(self, *_, **__):
            self.end()

    return Callback()


def for_lightning():
    from lightning.pytorch import Callback

    class LightningCallback(Parts, Callback):
        def on_train_batch_start(self, *_):
            self.start("forward")

        def on_before_backward(self, *_):
            self.enter("backward")

        def on_before_optimizer_step(self, *_):
            self.enter("optimizer")

        def on_validation_start(self, *_):
            self.enter("log")

        def on_train_batch_end(self, *_):
            self.enter("data")

        on_validation_end = on_train_batch_end

        def on_train_end(self, *_):
            self.end()

    return LightningCallback()
