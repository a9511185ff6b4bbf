"""Take the course's own recording of rocprof-sys on a CPU into recordings/, compressed, with its
manifest entry.

    python scripts/dev/ship_sampling.py FOLDER

FOLDER holds README.md, course.cfg, console.log, train_small.py and rocprofsys-python-output. The
tables that repeat others (text beside JSON, the CPU clock that counted nothing) are left out.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from make_recordings import TARGET, file_entry, same_content, update_manifest

NAME = "rocprof-sys-cpu"
OUTPUT = "rocprofsys-python-output"
PLAIN = ("README.md", "console.log", "course.cfg", "rocprof-sys-default.cfg", "train_small.py")
TABLES = (
    "perfetto-trace",
    "sampling_wall_clock",
    "sampling_percent",
    "trip_count",
    "wall_clock",
    "metadata",
)


def wanted(source: Path) -> list[Path]:
    """Files to ship, relative to the source."""
    named = [
        path
        for path in sorted((source / OUTPUT).iterdir())
        if path.name.rpartition("-")[0] in TABLES
    ]
    chosen = [path for path in named if path.suffix in (".json", ".proto")]
    return [Path(name) for name in PLAIN] + [path.relative_to(source) for path in chosen]


def main() -> int:
    """Copy, compress and list."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path, help="folder of the recording")
    source = parser.parse_args().source
    files = []
    for name in wanted(source):
        content = (source / name).read_bytes()
        is_plain = str(name) in PLAIN
        path = TARGET / NAME / (name if is_plain else name.with_name(f"{name.name}.gz"))
        if not same_content(path, content):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if is_plain else gzip.compress(content, 9, mtime=0))
        files.append(file_entry(path, TARGET) | {"role": "reference" if is_plain else "recording"})
    update_manifest(
        TARGET / "manifest.json",
        [
            {
                "name": NAME,
                "kind": "rocprof-sys",
                "tool": "rocprof-sys-sample (ROCm Systems Profiler), call stacks of the host",
                "tool_version": "1.2.0",
                "gpu": "2 Intel Xeon cores, no GPU",
                "workload": (
                    "ten training steps of a small ResNet on the CPU, import of torch included"
                ),
                "files": files,
                "licence": "MIT",
                "licence_url": "https://opensource.org/license/mit",
                "copyright": "the authors of the course",
                "notes": (
                    "Recorded for this course without a GPU and without ROCm; README.md in its"
                    " folder says how and what is odd about it."
                ),
                "torch": "2.13.0",
            }
        ],
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
