"""Time a training step on an AMD or NVIDIA GPU, or on a CPU.

Copy this file next to your script as time_a_step.py, then add these lines to the
script:

    from time_a_step import report, step_seconds
    print(report(step_seconds(lambda: train_one_batch(next(batches))), images=256))

The function that you pass runs one step. Your function doesn't need to wait for the
GPU. To try this file with a small model, run `python time_a_step.py`.
"""

import itertools
import statistics
import time

import torch

# Also True for AMD GPUs
ON_GPU = torch.cuda.is_available()


def step_seconds(step, steps=50, warmup=10):
    """Call step() warmup + steps times, and return the duration of each step after the
    warmup in seconds.
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
            f"warning: step times total {sum(seconds):.3f} s, but the host measured "
            f"{whole:.3f} s"
        )
    return seconds


def mark():
    """Return an event recorded on the GPU, or the current time on a CPU."""
    if not ON_GPU:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(begin, end):
    """Return the seconds between two marks. On a GPU, call wait() first."""
    return begin.elapsed_time(end) / 1e3 if ON_GPU else end - begin


def wait():
    """Wait until the GPU has finished all launched work."""
    if ON_GPU:
        torch.cuda.synchronize()


def report(seconds, images):
    """Return one line with the mean, median and quartiles of the step times, and the
    throughput.

    Before you share this line, add the model, the precision and the batch size.
    """
    lower, median, upper = (1e3 * value for value in statistics.quantiles(seconds, n=4))
    name = (
        torch.cuda.get_device_name()
        if ON_GPU
        else f"CPU, {torch.get_num_threads()} threads"
    )
    return (
        f"{1e3 * statistics.mean(seconds):.3f} ms per step (mean of {len(seconds)}, "
        f"median {median:.3f}, quartiles {lower:.3f} to {upper:.3f}), "
        f"{images * len(seconds) / sum(seconds):.1f} images/s, {name}, torch "
        f"{torch.__version__}"
    )


if __name__ == "__main__":
    place = "cuda" if ON_GPU else "cpu"
    model = torch.nn.Linear(3072, 100, device=place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(256, 3072, device=place)
    labels = torch.randint(100, (256,), device=place)

    def one_step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    print(report(step_seconds(one_step), images=256))
