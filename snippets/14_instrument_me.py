"""Paste this above a training loop; then WATCH=times or WATCH=trace makes it talk, and without WATCH it costs nothing.

    watch = Watch()             # right above the loop
    for batch in loader:
        watch("forward")        # one line where a part of the step begins; the one before ends there
        ...
        watch("backward")
        watch.step()            # last line of the loop; what follows, up to the next part, is called "data"
    watch.close()               # below the loop

Logging and validation are parts, too: watch("log") in front of them, so that nobody takes them for data.
WATCH=times python train.py     times_rank0.jsonl: seconds of each part, a line for each step; to compare and to prove
WATCH=trace python train.py     trace_rank0.json.gz: torch.profiler's trace of a few steps with the parts as ranges; a
                                trace explains, but its times are too long. WATCH_STACK=1: Python functions, too
Files go to the folder in WATCH_DIR, or here. Each rank writes its own; a job that is killed leaves the times so far.
The trace also says how long each part had a processor, and stood in line for one behind other programs (watch_parts).
"""

import json
import os
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

RANK = next((os.environ[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "PMI_RANK", "SLURM_PROCID")
             if name in os.environ), "0")  # fmt: skip
SCHEDULER = "/proc/thread-self/schedstat"


class Watch:
    """Times the parts of each step, or profiles some steps; does nothing where WATCH is not set."""

    def __init__(self, skip=5, active=3):
        self.mode = os.environ.get("WATCH", "")
        if self.mode not in ("", "times", "trace"):
            raise SystemExit(f"WATCH={self.mode} is neither times nor trace")
        if not self.mode:
            return
        os.makedirs(os.environ.get("WATCH_DIR", "."), exist_ok=True)
        self.path = os.path.join(os.environ.get("WATCH_DIR", "."), f"{{}}_rank{RANK}.{{}}")
        self.part, self.parts, self.range, self.steps, self.needed = None, [], None, 0, skip + 1 + active
        if self.mode == "trace":
            activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
            when = schedule(skip_first=skip, wait=0, warmup=1, active=active, repeat=1)
            stack = "WATCH_STACK" in os.environ
            self.profiler = profile(activities=activities, schedule=when, with_stack=stack)
            self.profiler.on_trace_ready = lambda own: own.export_chrome_trace(self.path.format("trace", "json.gz"))
            self.profiler.start()
        else:
            self.file = open(self.path.format("times", "jsonl"), "w")  # noqa: SIM115
        self("data")

    def __call__(self, part):
        """The part before ends, this one begins."""
        if self.mode:
            self._end()
            if self.mode == "trace":
                self.range = record_function(part).__enter__()
            self.part, self.began, self.begin = part, time.time_ns(), clocks()

    def step(self):
        """A step ends, and the wait for the next batch begins."""
        if not self.mode:
            return
        self._end()
        if self.mode == "times":
            times = {}
            for part, _, length, *_ in self.parts:
                times[part] = times.get(part, 0.0) + length / 1e9
            self.file.write(json.dumps({"rank": int(RANK), "step": self.steps, **times}) + "\n")
            self.file.flush()
        elif recorded := self.profiler.current_action.name.startswith("RECORD"):
            self.profiler.add_metadata_json("watch_parts", json.dumps(self.parts))
        if self.mode == "times" or not recorded:
            self.parts.clear()
        if self.mode == "trace":
            self.profiler.step()
        self.steps += 1
        self("data")

    def close(self):
        """Writes what there is."""
        if self.mode == "times":
            self.file.close()
        elif self.mode:
            self._end()
            self.profiler.stop()
            if self.steps < self.needed:
                print(f"WATCH=trace: {self.steps} steps, {self.needed} are needed: lower Watch(skip)", file=sys.stderr)

    def _end(self):
        if self.mode == "times" and torch.cuda.is_available():
            torch.cuda.synchronize()  # what the GPU has still to do belongs to the part that ordered it
        if self.part:
            # name, begin, length, time on a processor, time in line for one; all but the name in nanoseconds
            self.parts.append([self.part, self.began, *map(int.__sub__, clocks(), self.begin)])
        if self.range:
            self.range.__exit__(None, None, None)
        self.part = self.range = None


def clocks():
    """The time, and how long this thread had a processor and stood in line for one (Linux tells), in nanoseconds."""
    found = [time.perf_counter_ns(), time.thread_time_ns()]
    if os.path.exists(SCHEDULER):
        with open(SCHEDULER) as file:
            found.append(int(file.read().split()[1]))
    return found
