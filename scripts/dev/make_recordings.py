"""Write the modelled recordings that ship with the course into recordings/, and their manifest
entries.

    python scripts/dev/make_recordings.py [--only NAME ...] [--into FOLDER]

Every model healthy in every tool's format, and every pathology as traces and kernel statistics. A
file is replaced only if its uncompressed content has changed, so that another version of a
compressor leaves no difference.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cifar_train.config import MODELS, ZOO, TrainConfig
from gpumodel import Run, Training, simulate
from gpumodel.devices import model_error
from gpumodel.workload import Sampling
from gpumodel.writers import write

TARGET = Path(__file__).resolve().parents[2] / "recordings"
PREFIX = "modelled-"
COMPRESSED = (".json", ".csv", ".db", ".pftrace", ".proto")
"""Files of these types are shipped compressed; tidyprof reads them as they are."""

WATCHED = {
    "torch_profile": True,
    "record_shapes": True,
    "max_steps": 6,
}
"""The last steps of six are recorded by torch.profiler, as a user would."""

COUNTED_KERNELS = 12
"""So many kernels, those with the most time, have counters of one dispatch each; all would be
hundreds of megabytes.
"""

UNPACKED = "rocprof-compute"
"""A workload folder is known by the names of its files, so these stay as they are."""


@dataclass(frozen=True)
class Recipe:
    """One entry: its name, what is played, and what a learner should know about it."""

    name: str
    model: str
    pathology: str | None = None
    ranks: int = 1

    @property
    def workload(self) -> str:
        """For the manifest."""
        fault = f", with the fault {self.pathology}" if self.pathology else ", healthy"
        return f"CIFAR-100 trainer, {self.model}, automixed, batch 256{fault}"

    def config(self, **switches: Any) -> TrainConfig:
        """The trainer's configuration of a run."""
        needed = {"compile": True} if self.pathology == "recompile" else {}
        return TrainConfig(model=self.model, pathology=self.pathology, **needed, **switches)

    def play(self, profiler: str, **switches: Any) -> Run:
        """The run under the eyes of a profiler."""
        stacks = Sampling(by_wall_clock=500) if profiler == "rocprof-sys" else False
        return simulate(
            Training(
                config=self.config(**switches), ranks=self.ranks, profiler=profiler, stacks=stacks
            )
        )


def recipes() -> list[Recipe]:
    """Everything that is shipped."""
    healthy = [Recipe(f"{PREFIX}{model}", model) for model in MODELS]
    sick = [
        Recipe(f"{PREFIX}{name}", model, name, ranks)
        for name, (model, ranks) in (
            (one.name, one.recording) for one in ZOO.values() if one.recording
        )
    ]
    return healthy + sick


def write_formats(recipe: Recipe, folder: Path) -> None:
    """All files of an entry, uncompressed, below `folder`."""
    watched = recipe.play("torch", **WATCHED, profile_all_ranks=recipe.ranks > 1)
    write("kineto", watched, folder / "torch", compress=False)
    counted = recipe.play("rocprofv3", max_steps=2)
    write(
        "rocprofv3-csv",
        counted,
        folder / "rocprofv3",
        prefix="%rank%",
        traces=("kernel",),
        stats=True,
    )
    if recipe.pathology:
        return
    write("rocprofv3-json", counted, folder / "rocprofv3-json", prefix="%rank%")
    write("rocpd", counted, folder / "rocpd", prefix="%rank%")
    write("perfetto", counted, folder / "perfetto", prefix="%rank%")
    sampled = recipe.play("rocprof-sys", max_steps=2)
    write("rocprof-sys", sampled, folder / "rocprof-sys", profile=True, time_output=False)
    write(
        "rocprof-compute", with_longest(counted), folder, blocks=("2",), output_directory=UNPACKED
    )
    monitored = recipe.play("none", max_steps=150)
    write("amd-smi", monitored, folder / "amd-smi", flags="putm", interval_s=1)
    write("omnistat", monitored, folder / "omnistat", interval_s=1)


def with_longest(run: Run) -> Run:
    """The run with the last dispatch of each kernel whose counters are shipped, and nothing else on
    the device.

    rocprof-compute's -d could not choose them: it counts each kernel's dispatches for itself.
    """
    rank = run.ranks[0]
    work = rank.device_work[rank.device_work["kind"] == "kernel"]
    longest = work.groupby("name")["duration_ns"].sum().nlargest(COUNTED_KERNELS).index
    last = work[work["name"].isin(longest)].drop_duplicates("name", keep="last")
    return replace(run, ranks=(replace(rank, device_work=last),))


def packed(folder: Path) -> Iterator[tuple[Path, bytes, bytes]]:
    """Each file below a folder: its name when shipped, its content as written and as shipped."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, content = file.relative_to(folder), file.read_bytes()
        is_plain = name.parts[0] == UNPACKED or file.name.endswith("modelled.json")
        if file.suffix in COMPRESSED and not is_plain:
            yield name.with_name(f"{name.name}.gz"), content, gzip.compress(content, 9, mtime=0)
        else:
            yield name, content, content


def same_content(path: Path, content: bytes) -> bool:
    """Whether a shipped file holds this content."""
    return path.is_file() and unpacked(path) == content


def unpacked(path: Path) -> bytes:
    """The content of a shipped file as it was written."""
    shipped = path.read_bytes()
    return gzip.decompress(shipped) if path.suffix == ".gz" else shipped


def make(recipe: Recipe, target: Path) -> dict[str, Any]:
    """Bring one entry's folder up to date; its entry of the manifest."""
    target = target.resolve()
    # Some formats state the path they were written to: a relative one is the same everywhere.
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        write_formats(recipe, Path())
        files = []
        for name, content, shipped in packed(Path()):
            path = target / recipe.name / name
            if not same_content(path, content):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(shipped)
            files.append(path)
    for stray in set((target / recipe.name).rglob("*")) - set(files):
        if stray.is_file():
            stray.unlink()
    return entry(recipe, files, target)


def entry(recipe: Recipe, files: list[Path], target: Path) -> dict[str, Any]:
    """The manifest's entry of shipped files."""
    return {
        "name": recipe.name,
        "kind": "modelled-set",
        "tool": "gpumodel, in the formats of the tools that its folders are named after",
        "gpu": "MI300X",
        "workload": recipe.workload,
        "files": [file_entry(path, target) for path in files],
        "licence": "MIT",
        "licence_url": "https://opensource.org/license/mit",
        "copyright": "the authors of the course",
        "notes": "Computed by gpumodel; no GPU was measured. `make recordings` writes it again.",
        "origin": "modelled",
        "error": model_error(),
    }


def file_entry(path: Path, target: Path) -> dict[str, Any]:
    """Path, checksum and size of one file."""
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    role = "mark" if path.name.endswith("modelled.json") else "recording"
    return {
        "path": str(path.relative_to(target)),
        "sha256": digest,
        "bytes": len(content),
        "role": role,
    }


def update_manifest(path: Path, entries: list[dict[str, Any]]) -> None:
    """Replace or append entries, in the full form that the import of public recordings writes."""
    import msgspec

    from proflab.recordings import Entry

    complete = {
        entry["name"]: msgspec.to_builtins(msgspec.convert(entry, Entry)) for entry in entries
    }
    known = json.loads(path.read_text(encoding="utf-8"))
    merged = [complete.pop(old["name"], old) for old in known] + list(complete.values())
    path.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Make all recordings, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of entries (default: all)")
    parser.add_argument(
        "--into", type=Path, default=TARGET, help="folder with manifest.json (default: recordings)"
    )
    options = parser.parse_args()
    wanted = [recipe for recipe in recipes() if options.only is None or recipe.name in options.only]
    entries = []
    for recipe in wanted:
        entries.append(make(recipe, options.into))
        size = sum(file["bytes"] for file in entries[-1]["files"])
        print(
            f"{recipe.name:32} {len(entries[-1]['files']):3} files {size / 1e6:6.2f} MB",
            file=sys.stderr,
            flush=True,
        )
    update_manifest(options.into / "manifest.json", entries)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
