"""The block of 14_instrument_me.py where a library has the loop: hand a callback to its trainer.

    Trainer(..., callbacks=[for_transformers()])      Trainer of transformers
    Trainer(..., callbacks=[for_lightning()])         Trainer of Lightning

STEP_TIMER=times or STEP_TIMER=trace makes it talk, as ever. What a library's hooks don't tell apart
is one part: transformers has no hook between forward and backward. Tried with transformers 5.23 and
accelerate 1.15, and with Lightning 2.6.
"""

from instrument_me import Watch


def for_transformers():
    from transformers import TrainerCallback

    class Parts(TrainerCallback):
        watch = None

        def on_step_begin(self, *_, **__):
            if self.watch:
                # Here, since logging and the wait for this batch belong to the step before.
                self.watch.step()
            self.watch = self.watch or Watch()
            self.watch("forward_backward")

        def on_pre_optimizer_step(self, *_, **__):
            self.watch("optimizer")

        def on_step_end(self, args, state, control, **_):
            due = control.should_log or control.should_evaluate or control.should_save
            if self.watch:
                self.watch("log" if due else "data")

        on_log = on_evaluate = on_save = on_step_end

        def on_train_end(self, *_, **__):
            self.watch.step()
            self.watch.close()
            self.watch = None

    return Parts()


def for_lightning():
    from lightning.pytorch import Callback

    class Parts(Callback):
        watch = None

        def on_train_batch_start(self, *_):
            if self.watch:
                self.watch.step()
            self.watch = self.watch or Watch()
            self.watch("forward")

        def on_before_backward(self, *_):
            self.watch("backward")

        def on_before_optimizer_step(self, *_):
            self.watch("optimizer")

        def on_validation_start(self, *_):
            if self.watch:  # not yet in the check before the training
                self.watch("log")

        def on_train_batch_end(self, *_):
            if self.watch:
                self.watch("data")

        on_validation_end = on_train_batch_end

        def on_train_end(self, *_):
            self.watch.step()
            self.watch.close()
            self.watch = None

    return Parts()
