"""Record how a compiled model answers batches of changing size, on this machine's processor, into
recordings/.

    python scripts/dev/record_compiled_on_cpu.py

A block of a transformer, compiled and asked from the first call on, so that the trace holds the
compiler's work too. A question to its own result splits its graph, and the last batch of each round
is smaller. Beside the trace lie the times of such a block, eager and compiled in turn, without a
profiler. Times differ from run to run, so this is not part of `make recordings`.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from make_recordings import TARGET, file_entry, update_manifest
from record_on_cpu import processor
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

NAME = "torch-cpu-compiled-block"
BATCHES = (32, 32, 32, 20) * 3
CALLS = 40
TRACE, TIMES = "trace.json.gz", "times.csv"


class Block(nn.Module):
    """Half of a transformer's layer; with `reports` it looks at its own result on the way."""

    def __init__(self, reports: bool, width: int = 128) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.reports = reports

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's result for a batch of vectors."""
        hidden = nn.functional.gelu(self.up(self.norm(x)))
        if self.reports and hidden.max().item() > 1e3:
            print("large values")
        return x + self.down(hidden).clamp(-10, 10) * 0.5


def times_of(ways: dict[str, Callable[[torch.Tensor], torch.Tensor]]) -> list[str]:
    """Lines of CSV: milliseconds of each of CALLS calls, the first included, in turn so that noise
    meets all alike.
    """
    batch, lines = torch.randn(32, 64, 128), ["how,call,ms"]
    for call in range(CALLS):
        for how, answer in ways.items():
            begin = time.perf_counter()
            answer(batch)
            lines.append(f"{how},{call},{1e3 * (time.perf_counter() - begin):.4f}")
    return lines


@torch.no_grad()
def record(folder: Path) -> None:
    """Write the times and the trace."""
    eager = Block(reports=False)
    (folder / TIMES).write_text(
        "\n".join(times_of({"eager": eager, "compiled": torch.compile(eager)})) + "\n"
    )
    torch._dynamo.reset()
    served = torch.compile(Block(reports=True))
    with profile(activities=[ProfilerActivity.CPU]) as recorder:
        for number, size in enumerate(BATCHES):
            with record_function(f"ProfilerStep#{number}"):
                batch = torch.randn(size, 64, 128)
                with record_function("forward"):
                    served(batch)
    recorder.export_chrome_trace(str(folder / "trace.json"))
    plain = folder / "trace.json"
    (folder / TRACE).write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()


def main() -> int:
    """Record and list it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = TARGET / NAME
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        record(folder)
    entry = {
        "name": NAME,
        "kind": "torch-chrome-trace",
        "tool": "torch.profiler (Kineto Chrome trace)",
        "gpu": processor(),
        "workload": (
            f"a block of a transformer with torch.compile, forward only, {len(BATCHES)} batches of"
            " two sizes"
        ),
        "files": [
            file_entry(folder / TRACE, TARGET) | {"role": "recording"},
            file_entry(folder / TIMES, TARGET) | {"role": "reference"},
        ],
        "main": TRACE,
        "torch": version("torch"),
        "licence": "MIT",
        "licence_url": "https://opensource.org/license/mit",
        "copyright": "the authors of the course",
        "notes": (
            "Recorded for this course on one thread of a small virtual machine that others used as"
            " well; the compiler's own work is in the trace. times.csv was measured without a"
            " profiler, with an empty cache of the compiler."
        ),
    }
    update_manifest(TARGET / "manifest.json", [entry])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
