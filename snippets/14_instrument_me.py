"""Time or trace the parts of each training step.

Paste this file above your training loop and call the timer once per part:

    timer = StepTimer()         # directly above the loop
    for batch in loader:
        timer("forward")        # the previous part ends and this one starts
        ...
        timer("backward")
        ...
        # the last line of the loop; until the next part, time is "data"
        timer.step()
    timer.close()               # below the loop

Put timer("log") before logging and validation. Otherwise, their time counts as "data".
Environment variables control the timer, for example `STEP_TIMER=times python train.py`.
Without STEP_TIMER, the timer does nothing and costs no time.

- STEP_TIMER=times: write the seconds of each part to times_rank0.jsonl, one line per
  step. Use these times to compare versions. To record the work of a step, call
  timer.step(samples=len(batch)).
- STEP_TIMER=trace: write a torch.profiler trace of a few steps to trace_rank0.json.gz,
  with the parts as ranges. The profiler can double the time of host work, so the trace
  also contains the times of the ten steps before it.
- STEP_TIMER_SKIP=8: start recording after 8 steps instead of 20, for a short program.
- STEP_TIMER_SHAPES=1: also record the shapes of operators.
- STEP_TIMER_STACK=1: also record Python functions, which makes steps longer and fills
  gigabytes of memory. The trace ends when it reaches a memory limit.
- STEP_TIMER_DIR=out: write the files to this folder.

Each rank writes a separate file. If a job is killed, the times so far are kept. The
trace also records how long each part ran on a CPU core, and how long each part waited
for a core while other programs ran (watch_parts).
"""

import json
import os
import platform
import resource
import sys
import time

import torch
import torch.profiler

RANK_VARIABLES = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PALS_RANKID",
    "PMI_RANK",
    "SLURM_PROCID",
)
TIMER_RANK = next(
    (os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0"
)
SCHEDULER = "/proc/thread-self/schedstat"
TIMED_STEPS, STACK_GB = 10, 4


class StepTimer:
    """Timer or profiler for the parts of each step. STEP_TIMER selects the mode."""

    def __init__(self, skip=20, active=3):
        """Trace `active` steps after the first `skip` steps. Also time the last ten of
        the skipped steps.
        """
        self.mode = os.environ.get("STEP_TIMER", "")
        if self.mode not in ("", "times", "trace"):
            raise SystemExit(
                f"STEP_TIMER={self.mode} is invalid. Set it to times or trace."
            )
        if not self.mode:
            return
        folder = os.environ.get("STEP_TIMER_DIR", ".")
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"{{}}_rank{TIMER_RANK}.{{}}")
        self.part, self.parts, self.range, self.profiler, self.steps = (
            None,
            [],
            None,
            None,
            0,
        )
        stated = os.environ.get("STEP_TIMER_SKIP", str(skip)).strip()
        if not stated.isdecimal():
            raise SystemExit(
                f"STEP_TIMER_SKIP={stated} is invalid. Set it to a number of steps."
            )
        self.skip, self.active, self.untraced = int(stated), active, None
        self.timed_from, self.needed = (
            max(1, self.skip - TIMED_STEPS),
            self.skip + 1 + active,
        )
        if self.mode == "times":
            self.file = open(self.path.format("times", "jsonl"), "w")  # noqa: SIM115
        elif self.skip == 0:
            self._record()
        self("data")

    def __call__(self, part):
        """End the previous part and start the part `part`."""
        if self.mode:
            self._end()
            if self.profiler:
                self.range = torch.profiler.record_function(part).__enter__()
            self.part, self.began, self.clocks = part, time.time_ns(), read_clocks()

    def step(self, samples=None):
        """End a step and start the wait for the next batch."""
        if not self.mode:
            return
        self._end()
        self.steps += 1
        if self.mode == "times":
            line = {"rank": int(TIMER_RANK), "step": self.steps - 1}
            line |= {part: length / 1e9 for part, length in self._sums().items()}
            line |= {} if samples is None else {"samples": samples}
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
            self.parts.clear()
        elif self.profiler:
            self._step_of_trace()
        elif self.steps == self.skip:
            self._end_timing()
            self._record()
        elif self.steps == self.timed_from:
            wait_for_device()
            self.parts.clear()
            self.timing = time.perf_counter_ns()
        self("data")

    def close(self):
        """Write the results so far."""
        if self.mode == "times":
            self.file.close()
        elif self.mode:
            self._end()
            if self.profiler:
                self.profiler.stop()
            log(
                f"The loop ran {self.steps} steps, but a trace needs {self.needed} "
                "steps. Lower STEP_TIMER_SKIP."
            )
        self.mode = ""

    def _end_timing(self):
        """Time all steps since `timed_from` together. Don't wait for the device between
        the steps.
        """
        wait_for_device()
        if count := max(self.steps - self.timed_from, 0):
            parts = {part: length / count for part, length in self._sums().items()}
            step = (time.perf_counter_ns() - self.timing) / count
            self.untraced = {"steps": count, "step_ns": step, "parts_ns": parts}

    def _record(self):
        """Start the profiler with one warmup step and `active` recorded steps."""
        kinds = torch.profiler.ProfilerActivity
        activities = [kinds.CPU] + [kinds.CUDA] * torch.cuda.is_available()
        schedule = torch.profiler.schedule(
            wait=0, warmup=1, active=self.active, repeat=1
        )
        stack, shapes = (
            os.environ.get(name, "0") not in ("", "0")
            for name in ("STEP_TIMER_STACK", "STEP_TIMER_SHAPES")
        )
        if stack:
            log(
                "Stacks make steps even longer. Memory limit for this trace: "
                f"{STACK_GB} GB."
            )
        self.most_gb = memory_gb() + STACK_GB if stack else float("inf")
        self.profiler = torch.profiler.profile(
            activities=activities,
            schedule=schedule,
            with_stack=stack,
            record_shapes=shapes,
        )
        self.profiler.on_trace_ready = self._write_trace
        self.parts.clear()
        self.profiler.start()

    def _write_trace(self, profiler):
        path = self.path.format("trace", "json.gz")
        profiler.export_chrome_trace(path)
        log(f"wrote {path}")

    def _step_of_trace(self):
        full = False
        if self.profiler.current_action.name.startswith("RECORD"):
            self.profiler.add_metadata_json("watch_parts", json.dumps(self.parts))
            self.profiler.add_metadata_json("watch_untraced", json.dumps(self.untraced))
            self.profiler.add_metadata_json("watch_machine", json.dumps(machine()))
            full = self.steps < self.needed and memory_gb() > self.most_gb
        else:
            self.parts.clear()
        if full:
            log(f"The trace ends here. It has filled {STACK_GB} GB.")
        else:
            self.profiler.step()
        if full or self.steps == self.needed:
            self.profiler.stop()
            self.mode = ""

    def _sums(self):
        """Return the total time of each part so far, in ns."""
        sums = {}
        for part, _, length, *_ in self.parts:
            sums[part] = sums.get(part, 0) + length
        return sums

    def _end(self):
        if self.mode == "times":
            # The GPU's pending work belongs to the part that launched it
            wait_for_device()
        if self.part:
            # The part, its start, length, CPU time and time waiting for a CPU core, in
            # ns
            lengths = map(int.__sub__, read_clocks(), self.clocks)
            self.parts.append([self.part, self.began, *lengths])
        if self.range:
            self.range.__exit__(None, None, None)
        self.part = self.range = None


def log(message):
    print(f"STEP_TIMER: {message}", file=sys.stderr)


def wait_for_device():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def memory_gb():
    """Return this process's peak memory use so far in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def machine():
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {
        "torch": torch.__version__,
        "rocm": torch.version.hip,
        "cuda": torch.version.cuda,
    }
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "gpu": gpu,
        **versions,
    }


def read_clocks():
    """Return the time, this thread's CPU time and, on Linux, its wait for a CPU core,
    in ns.
    """
    clocks = [time.perf_counter_ns(), time.thread_time_ns()]
    if os.path.exists(SCHEDULER):
        with open(SCHEDULER) as file:
            clocks.append(int(file.read().split()[1]))
    return clocks
