"""Make recordings of finished jobs, in the layout of the modelled ones, and enter them in the
manifest.

    python scripts/slurm/collect_recordings.py RESULTS RECORDINGS --copyright "Copyright (c) 2026
    Somebody"

RESULTS is RESULTS_DIR of site.env, or an archive of `make gpu-check`. All jobs of one GPU, model
and number of ranks become one set, `measured-GPU-MODEL` or `measured-GPU-MODEL-Nranks`, with a
folder for each tool. What the player wrote, what no reader takes and what holds no GPU work is left
out: nothing was measured there. With --replace a set measured on an AMD GPU takes the place of
`modelled-MODEL`. Names of hosts and of the user, paths, tokens and environments are hidden; what
the readers measure must be the same without them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
from gpu_check_archive import job_folders

import tidyprof
from proflab.jobs import readable_paths
from proflab.recordings import Entry
from proflab.scrubbing import Scrubber
from tidyprof.errors import ProfileReadError, UserError
from tidyprof.whole_files import whole_file

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

COMPRESSED = (".json", ".csv", ".db", ".rpd", ".pftrace", ".proto")
UNPACKED = "rocprof-compute"
"""A workload folder is known by the names of its files, so these stay as they are."""

LARGEST_MB = 50
"""Files above this size, as they are stored, have no place in a repository."""

_FOLDER = re.compile(r"(?P<script>[a-z0-9_]+?)_(?P<job>\d+)(_restart\d+)?")


def main(arguments: list[str] | None = None) -> int:
    """Record every job that can be; returns 0, or 2 if there was none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--copyright", required=True)
    parser.add_argument(
        "--replace", action="store_true", help="remove the modelled sets of the same models"
    )
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
    enter(entries, options.recordings, replaced(sets) if options.replace else set())
    return 0


def collect(results: Path, recordings: Path) -> dict[str, dict[str, Any]]:
    """Store what every job measured; the trainer's record by name of the set that its files went
    into.
    """
    sets: dict[str, dict[str, Any]] = {}
    scrubber = Scrubber(hosts(results))
    for folder in sorted(results.iterdir()):
        match = _FOLDER.fullmatch(folder.name)
        if match and folder.is_dir() and match["script"] in FOLDERS:
            try:
                run = check(folder)
                store(folder, recordings / set_name(run) / FOLDERS[match["script"]], scrubber)
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
    if any(profile.origin.kind == "modelled" for profile in profiles):
        raise UserError(
            "its files say that they are modelled; load the real tool's module and submit again"
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


def hosts(results: Path) -> set[str]:
    """The names of all machines that the trainers of finished jobs ran on."""
    metrics = [
        path.read_text().splitlines() for path in results.glob("*/train/metrics_rank*.jsonl")
    ]
    return {json.loads(lines[0])["host"] for lines in metrics if lines}


def store(folder: Path, target: Path, scrubber: Scrubber) -> None:
    """Copy what readers take of a job into the tool's folder of a set, without names and paths.

    Raises UserError for files too large, and where the copy would be read as something else.
    """
    shutil.rmtree(target, ignore_errors=True)
    for path in readable_paths(folder):
        root = path if path.is_dir() else path.parent
        copies = [
            copy(
                file,
                target / scrubber.text(str(file.relative_to(root))),
                scrubber,
                pack=target.name != UNPACKED,
            )
            for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
            if file.is_file()
        ]
        if measured(path) != measured(target if path.is_dir() else copies[0]):
            shutil.rmtree(target)
            raise UserError(
                f"{path.name} is read as something else once names are hidden: is a kernel named"
                " like you?"
            )
    large = [path.name for path in target.rglob("*") if path.stat().st_size > LARGEST_MB * 10**6]
    if large:
        shutil.rmtree(target)
        raise UserError(
            f"{large[0]} is larger than {LARGEST_MB} MB; take fewer steps (TRAIN_OPTIONS)"
        )


def measured(path: Path) -> tuple[str, str]:
    """What a reader finds of kernels and counters: names, times and values."""
    profile = tidyprof.read(path)
    work = profile.device_events[["kind", "name", "start_ns", "duration_ns"]]
    return work.to_csv(index=False), profile.counters[["time_ns", "name", "value"]].to_csv(
        index=False
    )


def copy(source: Path, target: Path, scrubber: Scrubber, *, pack: bool) -> Path:
    """Copy a file without names and paths, compressed where that is wanted and its type allows
    it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    content = scrubber.content(source)
    if pack and source.suffix in COMPRESSED:
        target = target.with_name(f"{target.name}.gz")
        # Without a time stamp the same content gives the same file.
        content = gzip.compress(content, mtime=0)
    target.write_bytes(content)
    return target


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
        "licence": "MIT",
        "licence_url": "https://opensource.org/license/mit",
        "copyright": copyright_line,
        "notes": (
            f"Measured {run['written'][:10]} with {platform_of(run)}; names of machines and people,"
            " and paths, are replaced by letters."
        ),
        "rocm": platform_of(run) if run["versions"]["hip"] else None,
        "torch": run["versions"]["torch"],
        "origin": "recorded",
    }
    return msgspec.to_builtins(msgspec.convert(entry, Entry))


def replaced(sets: dict[str, dict[str, Any]]) -> set[str]:
    """The modelled sets that give way, which are of AMD's GPUs: of one rank, healthy."""
    alike = [
        run for run in sets.values() if run["launch"]["world_size"] == 1 and run["versions"]["hip"]
    ]
    return {f"modelled-{run['config']['model']}" for run in alike}


def enter(made: list[dict[str, Any]], recordings: Path, dropped: set[str]) -> None:
    """Put entries into the manifest, each in the place of one of the same name, else at the end;
    remove the dropped.
    """
    manifest = recordings / "manifest.json"
    known = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else []
    new = {entry["name"]: entry for entry in made}
    merged = [
        new.pop(entry["name"], entry) for entry in known if entry["name"] not in dropped
    ] + list(new.values())
    with whole_file(manifest) as partial:
        partial.write_text(
            json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    for name in dropped:
        shutil.rmtree(recordings / name, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
