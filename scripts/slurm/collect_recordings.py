"""Make recordings of finished jobs, and enter them in the manifest.

    python scripts/slurm/collect_recordings.py RESULTS RECORDINGS --copyright "Copyright (c) 2026
    Somebody"

RESULTS is RESULTS_DIR of site.env, or an archive of `make gpu-check`. All jobs of one GPU, model
and number of ranks become one set, `measured-GPU-MODEL` or `measured-GPU-MODEL-Nranks`, with a
folder for each tool. What the player wrote, what no reader takes and what holds no GPU work is left
out: nothing was measured there. A set holds traces and tables of counters with the columns of
`proflab.published`, which tell nothing of people and machines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import tidyprof
from proflab.published import publish, readable_paths
from proflab.recordings import Entry
from tidyprof.atomic_write import whole_file
from tidyprof.errors import ProfileReadError, UserError

FOLDERS = {
    "torch_profiler": "torch",
    "rocprofv3_kernels": "rocprofv3",
    "rocprofv3_trace": "perfetto",
    "rocprofv3_counters": "rocprofv3-counters",
    "rocprof_sys_trace": "rocprof-sys",
    "rocprof_sys_callstack": "rocprof-sys-callstack",
    "rocprof_compute_profile": "rocprof-compute",
    "rpd": "rpd",
    "omnistat": "omnistat",
}
"""The tool's folder in a set, by job script; the other scripts leave nothing to record."""

LARGEST_MB = 50
"""Files above this size, as they are stored, have no place in a repository."""

_FOLDER = re.compile(r"(?P<script>[a-z0-9_]+?)_(?P<job>\d+)(_restart\d+)?")
_TRACED = re.compile(
    r"[^/]+/traces/(?P<model>\w+)/(?P<file>metrics_rank0_of_1\.jsonl|trace_rank0\.json\.gz)"
)
"""The files of an archive of gpu-check that are taken."""


def main(arguments: list[str] | None = None) -> int:
    """Record every job that can be; returns 0, or 2 if there was none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--copyright", required=True)
    options = parser.parse_args(arguments)
    try:
        with job_folders(options.results) as results:
            sets = collect(results, options.recordings)
    except UserError as error:
        print(f"collect_recordings: {error}", file=sys.stderr)
        return 2
    if not sets:
        return 2
    entries = [
        entry_of(name, run, options.recordings / name, options.copyright)
        for name, run in sets.items()
    ]
    enter(entries, options.recordings)
    return 0


def collect(results: Path, recordings: Path) -> dict[str, dict[str, Any]]:
    """Store what every job measured; the trainer's record by name of the set that its files went
    into.
    """
    sets: dict[str, dict[str, Any]] = {}
    for folder in sorted(results.iterdir()):
        match = _FOLDER.fullmatch(folder.name)
        if match and folder.is_dir() and match["script"] in FOLDERS:
            try:
                run = check(folder)
                store(folder, recordings / set_name(run) / FOLDERS[match["script"]])
                sets[set_name(run)] = run
                print(f"recorded {folder.name} in {set_name(run)}")
            except (UserError, ProfileReadError) as error:
                print(f"left out {folder.name}: {error}", file=sys.stderr)
    return sets


def check(folder: Path) -> dict[str, Any]:
    """The trainer's record of the run. Raises UserError unless the job ended well, on GPUs, and its
    files are read.
    """
    code = folder / "exit_code"
    if not code.is_file() or code.read_text().strip() != "0":
        raise UserError("the job did not end with exit code 0")
    if any(folder.rglob("*modelled.json")):
        raise UserError(
            "a tape was replayed, nothing was measured; load the real tool's module and submit"
            " again"
        )
    run = run_record(folder)
    profiles = [tidyprof.read(path) for path in readable_paths(folder)]
    if any(profile.origin.kind == "modeled" for profile in profiles):
        raise UserError(
            "its files say that they are modeled; load the real tool's module and submit again"
        )
    if not any(
        "kernel" in set(profile.events["kind"]) or len(profile.counters) for profile in profiles
    ):
        raise UserError("no kernel and no counter is in it: the tool saw no GPU")
    return run


def run_record(folder: Path) -> dict[str, Any]:
    """What the trainer says of device, host and versions. Raises UserError where it left nothing,
    or had no GPU.
    """
    metrics = sorted((folder / "train").glob("metrics_rank0_of_*.jsonl"))
    if not metrics:
        raise UserError("the trainer's metrics are missing, which name the GPU")
    run = json.loads(metrics[0].read_text().splitlines()[0])
    if not platform_of(run):
        raise UserError(
            f"it ran on {run['device']}, with a torch that was built neither for ROCm nor for CUDA"
        )
    return run


def platform_of(run: dict[str, Any]) -> str:
    """What torch was built for, `HIP 7.2.1` or `CUDA 13.2`; "" for processors."""
    versions = run["versions"]
    return next(
        (f"{name.upper()} {versions[name]}" for name in ("hip", "cuda") if versions.get(name)), ""
    )


def set_name(run: dict[str, Any]) -> str:
    """The set that a run belongs to."""
    gpu, ranks = (
        re.sub(r"[^a-z0-9]+", "-", run["device"].lower()).strip("-"),
        run["launch"]["world_size"],
    )
    return f"measured-{gpu}-{run['config']['model']}" + (f"-{ranks}ranks" if ranks > 1 else "")


def store(folder: Path, target: Path) -> None:
    """Write what may be published of a job into the tool's folder of a set: a trace for each file
    that readers take, and a table of its counters.

    Raises UserError for files that are too large.
    """
    shutil.rmtree(target, ignore_errors=True)
    for number, path in enumerate(readable_paths(folder)):
        profile = publish(path, target / f"trace_{number}.json.gz")
        if len(profile.counters):
            profile.counters.to_csv(target / f"counters_{number}.csv.gz", index=False)
    if any(path.stat().st_size > LARGEST_MB * 10**6 for path in target.iterdir()):
        shutil.rmtree(target)
        raise UserError(f"a file is larger than {LARGEST_MB} MB; take fewer steps (TRAIN_OPTIONS)")


@contextmanager
def job_folders(results: Path) -> Iterator[Path]:
    """Yield the folder of job folders, or a temporary one with the traces of an archive of
    gpu-check, each as a finished job. Only files with the expected names are taken from an archive.
    """
    if results.is_dir():
        yield results
        return
    with tempfile.TemporaryDirectory() as name:
        numbers: dict[str, int] = {}
        try:
            with tarfile.open(results) as archive:
                for entry in archive:
                    if (found := _TRACED.fullmatch(entry.name)) and entry.isfile():
                        number = numbers.setdefault(found["model"], len(numbers))
                        job = Path(name) / f"torch_profiler_{number}"
                        if entry.size > LARGEST_MB * 10**6:
                            raise UserError(f"{results}: {entry.name} is too large")
                        (job / "train").mkdir(parents=True, exist_ok=True)
                        (job / "exit_code").write_text("0")
                        content = archive.extractfile(entry).read()
                        (job / "train" / found["file"]).write_bytes(content)
        except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
            raise UserError(f"{results}: cannot be unpacked ({error})") from error
        if not numbers:
            raise UserError(f"{results}: no trace is in it; did the part `traces` pass?")
        yield Path(name)


def entry_of(name: str, run: dict[str, Any], folder: Path, copyright_line: str) -> dict[str, Any]:
    """The manifest's entry, which says that it was measured, where and when."""
    config = run["config"]
    files = [
        {
            "path": str(path.relative_to(folder.parent)),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
            "role": "recording",
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    entry = {
        "name": name,
        "kind": "measured-set",
        "tool": (
            "the tools that its folders are named after, started by scripts/slurm or"
            " tools/gpu_check"
        ),
        "gpu": run["device"],
        "workload": (
            f"CIFAR-100 trainer, {config['model']}, {config['precision']}, batch"
            f" {config['batch_size']}, steps: {run['planned_steps']}, ranks:"
            f" {run['launch']['world_size']}"
        ),
        "files": files,
        "license": "MIT",
        "license_url": "https://opensource.org/license/mit",
        "copyright": copyright_line,
        "notes": (
            f"Measured {run['written'][:10]} with {platform_of(run)}; a selection of columns."
        ),
        "rocm": platform_of(run) if run["versions"]["hip"] else None,
        "torch": run["versions"]["torch"],
        "origin": "recorded",
    }
    return msgspec.to_builtins(msgspec.convert(entry, Entry))


def enter(made: list[dict[str, Any]], recordings: Path) -> None:
    """Put entries into the manifest, each in the place of one of the same name, else at the end."""
    manifest = recordings / "manifest.json"
    known = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else []
    merged = {entry["name"]: entry for entry in [*known, *made]}
    with whole_file(manifest) as partial:
        text = json.dumps(list(merged.values()), indent=1, ensure_ascii=False)
        partial.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
