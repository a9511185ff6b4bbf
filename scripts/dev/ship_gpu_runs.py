"""Take programs that were run on a GPU into packages/tidyprof/tests/strangers/gpu: their source,
their traces, cut, and their truths.

    python scripts/dev/ship_gpu_runs.py FOLDER

FOLDER has truth.json and for each program in it NAME/script.txt and NAME/FORM/trace_rank*.json.gz,
where FORM is sick or cured. truth.json says for each program its `cause` and `why`, written before
it ran, and for each form `untraced_ms`, the mean of 20 steps without a profiler, and
`device_busy_ms_a_step`, how long its device worked in a traced one. What is there already stays, so
that folders can follow each other.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

try:
    from compression import zstd
except ImportError:
    from backports import zstd

from tools.cuts.chrome_trace import packable, trace

TARGET = Path(__file__).resolve().parents[2] / "packages/tidyprof/tests/strangers/gpu"
KEPT = ("cause", "why", "untraced_ms", "device_busy_ms_a_step")
LEVEL = 22


def ship(folder: Path) -> None:
    """Write the cuts, the programs and the truths."""
    truths = json.loads((folder / "truth.json").read_text())
    stated = TARGET / "truth.json"
    known = json.loads(stated.read_text()) if stated.exists() else {}
    for name, truth in truths.items():
        (TARGET / name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name / "script.txt", TARGET / name / "script.txt")
        for form in truth["untraced_ms"]:
            target = TARGET / name / form
            target.mkdir(exist_ok=True)
            for file in sorted((folder / name / form).glob("trace_rank*.json.gz")):
                content = packable(trace(gzip.decompress(file.read_bytes())))
                (target / file.with_suffix(".zst").name).write_bytes(zstd.compress(content, LEVEL))
        known[name] = {key: truth[key] for key in KEPT}
    stated.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
