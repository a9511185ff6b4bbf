"""Record torch.profiler traces of the trainer's three models on this machine's processor into
recordings/.

    python scripts/dev/record_on_cpu.py

Two steps of 8 images each, with shapes; the vision transformer once more, compiled, right after its
plain run. They are real recordings of another machine for every reader of the course: times differ
from run to run, so this is not part of `make recordings`.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from make_recordings import TARGET, file_entry, update_manifest

from cifar_train.config import MODELS

OPTIONS = {
    "--batch-size": 8,
    "--max-steps": 7,
    "--data": "synthetic",
    "--device": "cpu",
    "--num-workers": 0,
    "--precision": "float32",
}
SWITCHES = ("--torch-profile", "--record-shapes")
RECORDED = {model: (model,) for model in MODELS} | {"vit-compiled": ("vit", "--compile")}
"""Last part of a recording's name -> model and further switches, in an order that keeps compared
runs together.
"""

KEPT = ("trace_rank0_of_1.json.gz", "config.json")


def processor() -> str:
    """Name and number of the processor's cores, as Linux states them."""
    text = Path("/proc/cpuinfo").read_text()
    names = [
        line.partition(":")[2].strip()
        for line in text.splitlines()
        if line.startswith("model name")
    ]
    return f"{len(names)} cores of {names[0]}, no GPU" if names else f"{platform.machine()}, no GPU"


def record(variant: str) -> dict:
    """Run the trainer once and keep its trace; the manifest's entry."""
    model, *more = RECORDED[variant]
    name = f"torch-cpu-{variant}"
    folder = TARGET / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as run:
        options = [str(word) for pair in OPTIONS.items() for word in pair]
        command = [
            sys.executable,
            "-m",
            "cifar_train",
            "--model",
            model,
            *more,
            *options,
            *SWITCHES,
            "--run-dir",
            run,
        ]
        subprocess.run(command, check=True)
        for file in KEPT:
            (folder / file).write_bytes((Path(run) / file).read_bytes())
    return {
        "name": name,
        "kind": "torch-chrome-trace",
        "tool": "torch.profiler (Kineto Chrome trace)",
        "gpu": processor(),
        "workload": (
            f"CIFAR-100 trainer, {' '.join([model, *more])}, float32, batch 8, synthetic images,"
            " steps 4 and 5"
        ),
        "files": [
            file_entry(folder / file, TARGET)
            | {"role": "recording" if file.startswith("trace") else "reference"}
            for file in KEPT
        ],
        "main": KEPT[0],
        "torch": version("torch"),
        "licence": "MIT",
        "licence_url": "https://opensource.org/license/mit",
        "copyright": "the authors of the course",
        "notes": "Recorded for this course on a small virtual machine; a trace without any device.",
    }


def main() -> int:
    """Record all models and list them."""
    update_manifest(TARGET / "manifest.json", [record(variant) for variant in RECORDED])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
