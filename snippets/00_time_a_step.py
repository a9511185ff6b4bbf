"""Time a training step honestly, on an AMD or NVIDIA GPU or on a processor.

Copy it beside your script as time_a_step.py, then:

    from time_a_step import report, step_seconds
    print(report(step_seconds(lambda: train_one_batch(next(batches))), images=256))

The function that you pass does one step and needs not wait for the GPU. `python time_a_step.py`
tries it on a small model.
"""

import itertools
import statistics
import time

import torch

ON_GPU = torch.cuda.is_available()  # True on AMD's GPUs too


def step_seconds(step, steps=50, warmup=10):
    """Call step() warmup + steps times; seconds of each step after the warm-up, by the device's own
    clock.
    """
    for _ in range(warmup):
        step()
    wait()
    begin = time.perf_counter()
    marks = [mark()]
    for _ in range(steps):
        step()
        marks.append(mark())
    wait()
    whole = time.perf_counter() - begin
    seconds = [between(*pair) for pair in itertools.pairwise(marks)]
    if abs(sum(seconds) - whole) > 0.1 * whole:
        print(
            f"careful: the steps add up to {sum(seconds):.3f} s, but the host waited for"
            f" {whole:.3f} s"
        )
    return seconds


def mark():
    """A moment: an event in the GPU's queue, which nobody has to wait for, or the time."""
    if not ON_GPU:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(begin, end):
    """Seconds between two marks; on a GPU only after wait()."""
    return begin.elapsed_time(end) / 1e3 if ON_GPU else end - begin


def wait():
    """Until the GPU has done all that was launched."""
    if ON_GPU:
        torch.cuda.synchronize()


def report(seconds, images):
    """Median, quartiles and rate in a line; add model, precision and batch size when you pass it
    on.
    """
    lower, median, upper = (1e3 * value for value in statistics.quantiles(seconds, n=4))
    name = (
        torch.cuda.get_device_name() if ON_GPU else f"processor, {torch.get_num_threads()} threads"
    )
    return (
        f"{median:.3f} ms a step (median of {len(seconds)}, quartiles {lower:.3f} to {upper:.3f}), "
        f"{images * len(seconds) / sum(seconds):.1f} images/s, {name}, torch {torch.__version__}"
    )


if __name__ == "__main__":
    place = "cuda" if ON_GPU else "cpu"
    model = torch.nn.Linear(3072, 100, device=place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(256, 3072, device=place), torch.randint(100, (256,), device=place)

    def one_step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    print(report(step_seconds(one_step), images=256))
