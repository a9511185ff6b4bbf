"""Paste this above a training loop; then WATCH=times or WATCH=trace makes it talk, and without WATCH it costs nothing.

    watch = Watch()             # above the loop
    for batch in loader:
        watch("forward")        # one line where a part of the step begins; the one before ends there
        ...
        watch("backward")
        ...
        watch.step()            # last line of the loop; what follows, up to the next part, is called "data"
    watch.close()               # below the loop

WATCH=times python train.py     times_rank0.jsonl: seconds of each part, a line for each step; to compare and to prove
WATCH=trace python train.py     trace_rank0.json.gz: torch.profiler's trace of a few steps with the parts as ranges; a
                                trace explains, but its times are those of a profiled run
Files go to the folder in WATCH_DIR, or here. Each rank writes its own.
"""

import json
import os
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

RANK = next((os.environ[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "PMI_RANK", "SLURM_PROCID")
             if name in os.environ), "0")  # fmt: skip


class Watch:
    """Times the parts of each step, or profiles some steps; does nothing where WATCH is not set."""

    def __init__(self, skip=5, active=3):
        self.mode = os.environ.get("WATCH", "")
        if self.mode not in ("", "times", "trace"):
            raise SystemExit(f"WATCH={self.mode} is neither times nor trace")
        self.folder = os.environ.get("WATCH_DIR", ".")
        self.part, self.begin, self.times, self.lines, self.range = None, 0.0, {}, [], None
        self.profiler = None
        if self.mode == "trace":
            os.makedirs(self.folder, exist_ok=True)
            activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
            when = schedule(skip_first=skip, wait=0, warmup=1, active=active, repeat=1)
            self.profiler = profile(activities=activities, schedule=when, on_trace_ready=self._write)
            self.profiler.start()
        self("data")

    def __call__(self, part):
        """The part before ends, this one begins."""
        if not self.mode:
            return
        if self.mode == "times":
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # what the GPU has still to do belongs to the part that ordered it
            now = time.perf_counter()
            if self.part:
                self.times[self.part] = self.times.get(self.part, 0.0) + now - self.begin
            self.begin = now
        else:
            self._end_range()
            self.range = record_function(part)
            self.range.__enter__()
        self.part = part

    def step(self):
        """A step ends, and the wait for the next batch begins."""
        if self.mode == "times":
            self("data")
            self.lines.append({"rank": int(RANK), "step": len(self.lines), **self.times})
            self.times = {}
        elif self.mode:
            self._end_range()
            self.profiler.step()
            self("data")

    def close(self):
        """Writes what there is."""
        if self.mode == "times":
            os.makedirs(self.folder, exist_ok=True)
            with open(os.path.join(self.folder, f"times_rank{RANK}.jsonl"), "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in self.lines)
        elif self.mode:
            self._end_range()
            self.profiler.stop()

    def _end_range(self):
        if self.range:
            self.range.__exit__(None, None, None)
        self.range = None

    def _write(self, profiler):
        profiler.export_chrome_trace(os.path.join(self.folder, f"trace_rank{RANK}.json.gz"))
