"""Take the case as it ran on a GPU into the course: the times of its steps, and the traces that
lessons read.

    python scripts/dev/ship_gpu_case.py FOLDER

FOLDER has a folder for each run, with the trainer's metrics_rank0_of_1.jsonl and, where it was
traced, trace_rank0_of_1.json.gz; runs without a trace lie below `timed`. It writes
lessons/h200_case.csv, a row for each step, and recordings/torch-h200-case-NAME with their entries
in the manifest. What the run's steps without the profiler took goes into the trace's metadata, as
the trainer and the block of lesson 14 put it there today.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

try:
    from compression import zstd
except ImportError:
    from backports import zstd

from proflab.recordings import Entry
from tidyprof.readers.torch.meta import UNTRACED_KEY
from tools.cuts.chrome_trace import packable, trace

ROOT = Path(__file__).resolve().parents[2]
TIMES, RECORDINGS = ROOT / "lessons/h200_case.csv", ROOT / "recordings"
METRICS, TRACE = "metrics_rank0_of_1.jsonl", "trace_rank0_of_1.json.gz"
TRACED = {"plain": 2, "loaders": 3, "large": 3, "compiled": 3}
"""Run -> how many of its last recorded steps are kept; the loader's operators make a step of
`plain` a megabyte.
"""
LEVEL = 19
HEAD = """\
# The case on one NVIDIA H200 (16 cores of a virtual machine, torch 2.11.0+cu130), \
26 November 2026: each step of each
# run, by events of the GPU. Runs were single ones; \
`traced` runs were recorded by torch.profiler in some steps.
"""
COLUMNS = ("run", "traced", "options", "step", "part", "profiled", "images", "duration_ns")
SWITCHES = {
    "fused_optimizer": "--fused-optimizer",
    "compile": "--compile",
    "channels_last": "--channels-last",
}
SWITCHES |= {"batched_transforms": "--batched-transforms"}


def options_of(config: dict[str, Any]) -> str:
    """The trainer's options of a run, those that differ from its defaults."""
    options = [f"--num-workers {config['num_workers']}"]
    if config["model"] != "resnet":
        options.append(f"--model {config['model']}")
    if config["batch_size"] != 256:
        options.append(f"--batch-size {config['batch_size']}")
    if config["precision"] != "automixed":
        options.append(f"--precision {config['precision']}")
    return " ".join([*options, *(text for name, text in SWITCHES.items() if config[name])])


def records_of(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a run states of itself, and its steps."""
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return lines[0], [line for line in lines if line["record"] == "step"]


def last_steps(text: bytes, count: int) -> bytes:
    """The trace from the begin of the last `count` recorded steps on."""
    whole = msgspec.json.decode(text)
    begins = sorted(
        event["ts"]
        for event in whole["traceEvents"]
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
    )
    first = begins[-count]
    kept = [
        event
        for event in whole["traceEvents"]
        if event["ph"] == "M" or event.get("ts", first) >= first
    ]
    return msgspec.json.encode({**whole, "traceEvents": kept})


def ship_trace(name: str, folder: Path) -> Entry:
    """Write the cut of one run; its entry in the manifest."""
    run, steps = records_of(folder)
    alone = [
        step["duration_ns"] for step in steps if step["part"] == "steady" and not step["profiled"]
    ]
    members = msgspec.json.decode(
        trace(last_steps(gzip.decompress((folder / TRACE).read_bytes()), TRACED[name]))
    )
    events = members.pop("traceEvents")
    members[UNTRACED_KEY] = {
        "steps": len(alone),
        "step_ns": sum(alone) / len(alone),
        "parts_ns": {},
    }
    whole = msgspec.json.encode({**members, "traceEvents": events})
    content = zstd.compress(packable(whole, by_name=False), LEVEL)
    path = f"torch-h200-case-{name}/trace_rank0_of_1.json.zst"
    (RECORDINGS / path).parent.mkdir(exist_ok=True)
    (RECORDINGS / path).write_bytes(content)
    file = {
        "path": path,
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "role": "recording",
    }
    entry = {
        "name": f"torch-h200-case-{name}",
        "kind": "torch-chrome-trace",
        "tool": "torch.profiler (Kineto Chrome trace)",
        "gpu": run["device"],
        "workload": (
            f"the course's case, {options_of(run['config'])}; the last {TRACED[name]} recorded"
            " steps"
        ),
        "files": [{**file, "url": None}],
        "licence": "MIT",
        "licence_url": "https://opensource.org/license/mit",
        "copyright": "the authors of the course",
        "notes": (
            "Recorded for this course by its trainer, on one GPU of another vendor. Cut to what"
            " tidyprof reads. The mean of the steady steps of the same run that were not profiled"
            " is in its metadata."
        ),
        "main": "trace_rank0_of_1.json.zst",
        "tool_version": "CUPTI",
        "gpu_arch": None,
        "rocm": None,
        "torch": f"{run['versions']['torch']}+cu{run['versions']['cuda'].replace('.', '')}",
        "source_repo": None,
        "source_commit": None,
        "origin": "recorded",
        "error": None,
        "cut": None,
    }
    return msgspec.convert(entry, Entry)


def ship(source: Path) -> None:
    """Write the times, the cuts and their entries."""
    with TIMES.open("w", newline="") as target:
        target.write(HEAD)
        rows = csv.writer(target, lineterminator="\n")
        rows.writerow(COLUMNS)
        for metrics in sorted(source.glob(f"**/{METRICS}")):
            run, steps = records_of(metrics.parent)
            is_traced = metrics.parent.parent.name != "timed"
            for step in steps:
                values = [step[name] for name in COLUMNS[3:]]
                rows.writerow([metrics.parent.name, is_traced, options_of(run["config"]), *values])
    manifest = RECORDINGS / "manifest.json"
    entries = {entry["name"]: entry for entry in json.loads(manifest.read_text())}
    for name in TRACED:
        entry = msgspec.to_builtins(ship_trace(name, source / name))
        entries[entry["name"]] = entry
    manifest.write_text(json.dumps(list(entries.values()), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
