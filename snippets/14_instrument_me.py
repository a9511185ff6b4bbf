"""Paste this above a training loop; then STEP_TIMER=times or STEP_TIMER=trace makes it talk, and
without STEP_TIMER it costs nothing.

    watch = Watch()             # right above the loop
    for batch in loader:
        watch("forward")        # one line where a part of the step begins and the one before ends
        ...
        watch("backward")
        watch.step()            # last line of the loop; what follows, up to a part, is "data"
    watch.close()               # below the loop

Logging and validation are parts, too: watch("log") in front of them, so that nobody takes them for
data.

STEP_TIMER=times python train.py  times_rank0.jsonl: seconds of each part, a line for each step;
                                  to compare and to prove. With watch.step(samples=len(batch)) it
                                  says how much a step did, too
STEP_TIMER=trace python train.py  trace_rank0.json.gz: torch.profiler's trace of a few steps with
                                  the parts as ranges. A trace explains, but a profiler makes what
                                  the host does up to twice as long. So the ten steps before it are
                                  timed without one, and the trace holds their times, too
STEP_TIMER_SKIP=8                 record after so many steps (else 20), where the program makes few
STEP_TIMER_SHAPES=1               the operators' shapes, too
STEP_TIMER_STACK=1                Python functions, too: longer steps yet, and gigabytes, so it ends
                                  when those are full

Files go to the folder in STEP_TIMER_DIR, or here. Each rank writes its own; a job that is killed
leaves the times so far. The trace also says how long each part had a processor, and stood in line
for one behind other programs (watch_parts).
"""

import json
import os
import platform
import resource
import sys
import time

import torch
import torch.profiler

WATCH_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "PMI_RANK", "SLURM_PROCID")
WATCH_RANK = next((os.environ[name] for name in WATCH_RANKS if name in os.environ), "0")
WATCH_SCHEDULER = "/proc/thread-self/schedstat"
WATCH_TIMED, WATCH_STACK_GB = 10, 4


class Watch:
    """Times the parts of each step, or profiles some steps; does nothing without STEP_TIMER."""

    def __init__(self, skip=20, active=3):
        """Trace `active` steps after `skip` others, of which the last ten are timed, but not the
        first.
        """
        self.mode = os.environ.get("STEP_TIMER", "")
        if self.mode not in ("", "times", "trace"):
            raise SystemExit(f"STEP_TIMER={self.mode} is neither times nor trace")
        if not self.mode:
            return
        os.makedirs(os.environ.get("STEP_TIMER_DIR", "."), exist_ok=True)
        self.path = os.path.join(
            os.environ.get("STEP_TIMER_DIR", "."), f"{{}}_rank{WATCH_RANK}.{{}}"
        )
        self.part, self.parts, self.range, self.profiler, self.steps = None, [], None, None, 0
        if not (stated := os.environ.get("STEP_TIMER_SKIP", str(skip)).strip()).isdecimal():
            raise SystemExit(f"STEP_TIMER_SKIP={stated} is no number of steps, such as 8")
        self.skip, self.active, self.untraced = int(stated), active, None
        self.timed_from, self.needed = max(1, self.skip - WATCH_TIMED), self.skip + 1 + active
        if self.mode == "times":
            self.file = open(self.path.format("times", "jsonl"), "w")  # noqa: SIM115
        elif self.skip == 0:
            self._record()
        self("data")

    def __call__(self, part):
        """The part before ends, this one begins."""
        if self.mode:
            self._end()
            if self.profiler:
                self.range = torch.profiler.record_function(part).__enter__()
            self.part, self.began, self.begin = part, time.time_ns(), watch_clocks()

    def step(self, samples=None):
        """A step ends, and the wait for the next batch begins."""
        if not self.mode:
            return
        self._end()
        self.steps += 1
        if self.mode == "times":
            line = {part: length / 1e9 for part, length in self._sums().items()}
            line |= {} if samples is None else {"samples": samples}
            self.file.write(
                json.dumps({"rank": int(WATCH_RANK), "step": self.steps - 1, **line}) + "\n"
            )
            self.file.flush()
            self.parts.clear()
        elif self.profiler:
            self._step_of_trace()
        elif self.steps == self.skip:
            self._end_timing()
            self._record()
        elif self.steps == self.timed_from:
            watch_device()
            self.parts.clear()
            self.timing = time.perf_counter_ns()
        self("data")

    def close(self):
        """Writes what there is."""
        if self.mode == "times":
            self.file.close()
        elif self.mode:
            self._end()
            if self.profiler:
                self.profiler.stop()
            print(
                f"STEP_TIMER=trace: {self.steps} steps, {self.needed} are needed: STEP_TIMER_SKIP"
                " lowers that",
                file=sys.stderr,
            )
        self.mode = ""

    def _end_timing(self):
        """The steps since timed_from as a whole: in between nobody waits for the device, as without
        this block.
        """
        watch_device()
        if count := max(self.steps - self.timed_from, 0):
            parts = {part: length / count for part, length in self._sums().items()}
            step = (time.perf_counter_ns() - self.timing) / count
            self.untraced = {"steps": count, "step_ns": step, "parts_ns": parts}

    def _record(self):
        """Starts the profiler: one step to warm it up, then `active` ones."""
        sorts = torch.profiler.ProfilerActivity
        activities = [sorts.CPU] + [sorts.CUDA] * torch.cuda.is_available()
        when = torch.profiler.schedule(wait=0, warmup=1, active=self.active, repeat=1)
        stack, shapes = (
            os.environ.get(name, "0") not in ("", "0")
            for name in ("STEP_TIMER_STACK", "STEP_TIMER_SHAPES")
        )
        if stack:
            print(
                f"STEP_TIMER_STACK: steps get longer still; the trace ends at {WATCH_STACK_GB} GB"
                " more",
                file=sys.stderr,
            )
        self.most_gb = watch_memory_gb() + WATCH_STACK_GB if stack else float("inf")
        self.profiler = torch.profiler.profile(
            activities=activities, schedule=when, with_stack=stack, record_shapes=shapes
        )
        self.profiler.on_trace_ready = self._write_trace
        self.parts.clear()
        self.profiler.start()

    def _write_trace(self, profiler):
        path = self.path.format("trace", "json.gz")
        profiler.export_chrome_trace(path)
        print(f"STEP_TIMER=trace: wrote {path}", file=sys.stderr)

    def _step_of_trace(self):
        recorded = self.profiler.current_action.name.startswith("RECORD")
        if recorded:
            found = {
                "watch_parts": self.parts,
                "watch_untraced": self.untraced,
                "watch_machine": watch_machine(),
            }
            for name, value in found.items():
                self.profiler.add_metadata_json(name, json.dumps(value))
        else:
            self.parts.clear()
        if full := recorded and self.steps < self.needed and watch_memory_gb() > self.most_gb:
            print(
                f"STEP_TIMER_STACK: {WATCH_STACK_GB} GB are full, the trace ends here",
                file=sys.stderr,
            )
        else:
            self.profiler.step()
        if full or self.steps == self.needed:
            self.profiler.stop()
            self.mode = ""

    def _sums(self):
        """Time in each part so far, ns."""
        sums = {}
        for part, _, length, *_ in self.parts:
            sums[part] = sums.get(part, 0) + length
        return sums

    def _end(self):
        if self.mode == "times":
            watch_device()  # what the GPU has still to do belongs to the part that ordered it
        if self.part:
            # name, begin, length, time on a processor, time in line for one; all but the name in
            # nanoseconds
            self.parts.append(
                [self.part, self.began, *map(int.__sub__, watch_clocks(), self.begin)]
            )
        if self.range:
            self.range.__exit__(None, None, None)
        self.part = self.range = None


def watch_device():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def watch_memory_gb():
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def watch_machine():
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {"torch": torch.__version__, "rocm": torch.version.hip, "cuda": torch.version.cuda}
    return {"host": platform.node(), "python": platform.python_version(), "gpu": gpu, **versions}


def watch_clocks():
    """The time, and how long this thread had a processor and stood in line for one (Linux tells),
    in nanoseconds.
    """
    found = [time.perf_counter_ns(), time.thread_time_ns()]
    if os.path.exists(WATCH_SCHEDULER):
        with open(WATCH_SCHEDULER) as file:
            found.append(int(file.read().split()[1]))
    return found
