"""Write a metrics file as the trainer does, with chosen step times."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MILLISECOND = 10**6


def records(
    durations_ms: Sequence[float], warmup: int = 0, profiled: Sequence[int] = (), batch: int = 8
) -> list[dict]:
    """The records of a run with these step times: the run, its steps, the summary, and a check
    after training.
    """
    steps = [
        {
            "record": "step",
            "step": place,
            "epoch": 0,
            "part": "warmup" if place < warmup else "steady",
            "profiled": place in profiled,
            "duration_ns": round(duration * MILLISECOND),
            "images": batch,
            "loss": 4.6,
        }
        for place, duration in enumerate(durations_ms)
    ]
    config = {"model": "resnet", "precision": "automixed", "batch_size": batch}
    run = {
        "record": "run",
        "config": config,
        "device": "Test GPU",
        "host": socket.gethostname(),
        "written": "2026-08-21T12:00:00+00:00",
    }
    summary = {
        "record": "summary",
        "device": "Test GPU",
        "arithmetic": "float16",
        "steps": len(steps),
        "median_step_ns": steps[len(steps) // 2]["duration_ns"],
        "images_per_second": 1.0,
    }
    return [
        run,
        *steps,
        summary,
        {"record": "check", "finding": "all 10 parameters have a finite gradient"},
    ]


def write_run(folder: Path, *arguments: Any, **keywords: Any) -> Path:
    """Write the records into `folder` as rank 0 of 1 and return the folder."""
    return write_records(folder, records(*arguments, **keywords))


def write_records(folder: Path, entries: Sequence[dict]) -> Path:
    """Write these records as they are and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "metrics_rank0_of_1.jsonl").write_text(lines)
    return folder
