"""Convert the results of finished jobs to recordings, and add the recordings to the manifest.

    python scripts/slurm/collect_recordings.py RESULTS RECORDINGS --copyright "Copyright (c) 2026
    Somebody"

RESULTS is RESULTS_DIR of site.env, or an archive from `make gpu-check`. All jobs with the same
GPU, model and number of ranks become one set, `measured-GPU-MODEL` or
`measured-GPU-MODEL-Nranks`. Each tool has one folder in the set.

The script leaves out replayed files, files without GPU work, and files that no reader accepts. A
set contains only traces and counter tables with the columns in `proflab.published`. These
columns don't identify people or machines.
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
"""Name of the tool's folder in a set, by job script. Other job scripts don't write recordings."""

LARGEST_MB = 50
"""Maximum size of a stored file. A larger file doesn't belong in a repository."""

_FOLDER = re.compile(r"(?P<script>[a-z0-9_]+?)_(?P<job>\d+)(_restart\d+)?")
_TRACED = re.compile(
    r"[^/]+/traces/(?P<model>\w+)/(?P<file>metrics_rank0_of_1\.jsonl|trace_rank0\.json\.gz)"
)
"""Names of the files to read from a gpu-check archive."""


def main(arguments: list[str] | None = None) -> int:
    """Add each suitable job to the recordings. Return 0, or 2 if no job is suitable."""
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
    """Store the measurements of each job. Return the trainer's record for each set, by the set's
    name.
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
                print(f"skipped {folder.name}: {error}", file=sys.stderr)
    return sets


def check(folder: Path) -> dict[str, Any]:
    """Return the trainer's record of the run.

    Raises UserError unless the job succeeded on GPUs and its files are readable.
    """
    code = folder / "exit_code"
    if not code.is_file() or code.read_text().strip() != "0":
        raise UserError("the job didn't end with exit code 0")
    if any(folder.rglob("*modelled.json")):
        raise UserError(
            "the job replayed a tape and measured nothing. Load the real tool's module and submit"
            " the job again"
        )
    run = run_record(folder)
    profiles = [tidyprof.read(path) for path in readable_paths(folder)]
    if any(profile.origin.kind == "modeled" for profile in profiles):
        raise UserError(
            "the job's files are modeled. Load the real tool's module and submit the job again"
        )
    if not any(
        "kernel" in set(profile.events["kind"]) or len(profile.counters) for profile in profiles
    ):
        raise UserError(
            "the job's files contain neither kernels nor counters, so the tool detected no GPU"
        )
    return run


def run_record(folder: Path) -> dict[str, Any]:
    """Return the trainer's record of the device, host and versions.

    Raises UserError if the record is missing or the trainer had no GPU.
    """
    metrics = sorted((folder / "train").glob("metrics_rank0_of_*.jsonl"))
    if not metrics:
        raise UserError("the trainer's metrics, which name the GPU, are missing")
    run = json.loads(metrics[0].read_text().splitlines()[0])
    if not platform_of(run):
        raise UserError(
            f"the job ran on {run['device']}. Its torch build supports neither ROCm nor CUDA"
        )
    return run


def platform_of(run: dict[str, Any]) -> str:
    """Return torch's platform, such as `HIP 7.2.1` or `CUDA 13.2`, or "" for a CPU build."""
    versions = run["versions"]
    return next(
        (f"{name.upper()} {versions[name]}" for name in ("hip", "cuda") if versions.get(name)), ""
    )


def set_name(run: dict[str, Any]) -> str:
    """Return the name of the run's set."""
    gpu, ranks = (
        re.sub(r"[^a-z0-9]+", "-", run["device"].lower()).strip("-"),
        run["launch"]["world_size"],
    )
    return f"measured-{gpu}-{run['config']['model']}" + (f"-{ranks}ranks" if ranks > 1 else "")


def store(folder: Path, target: Path) -> None:
    """Write the publishable part of a job into the tool's folder in a set.

    Each readable file becomes a trace and a table of its counters. Raises UserError for files
    that are too large.
    """
    shutil.rmtree(target, ignore_errors=True)
    for number, path in enumerate(readable_paths(folder)):
        profile = publish(path, target / f"trace_{number}.json.gz")
        if len(profile.counters):
            profile.counters.to_csv(target / f"counters_{number}.csv.gz", index=False)
    if any(path.stat().st_size > LARGEST_MB * 10**6 for path in target.iterdir()):
        shutil.rmtree(target)
        raise UserError(f"a file exceeds {LARGEST_MB} MB. Record fewer steps (TRAIN_OPTIONS)")


@contextmanager
def job_folders(results: Path) -> Iterator[Path]:
    """Yield the folder that contains the job folders.

    For a gpu-check archive, yield a temporary folder that contains each trace as a finished job.
    Only files with the expected names are extracted from an archive.
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
            raise UserError(f"can't unpack {results} ({error})") from error
        if not numbers:
            raise UserError(
                f"{results} doesn't contain a trace. Check that the part `traces` passed"
            )
        yield Path(name)


def entry_of(name: str, run: dict[str, Any], folder: Path, copyright_line: str) -> dict[str, Any]:
    """Return the manifest entry, which states what was measured, where and when."""
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
            "the tools that the folders are named after, started by scripts/slurm or"
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
    """Add entries to the manifest. A new entry replaces an existing entry with the same name."""
    manifest = recordings / "manifest.json"
    known = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else []
    merged = {entry["name"]: entry for entry in [*known, *made]}
    with whole_file(manifest) as partial:
        text = json.dumps(list(merged.values()), indent=1, ensure_ascii=False)
        partial.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
