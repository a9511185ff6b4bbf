"""`python -m tools.gpu_check` runs each part separately and makes one archive at the end.

Parts that already passed don't run again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from proflab.published import publish, published_run
from tools.generated_page import markdown_text
from tools.gpu_check.parts import PARTS, PYTHON, DiffersError, Gpus, NotHereError, Part

FOLDER = Path("build/gpu_check")
MINUTES = 30
"""Default time limit in minutes for all parts together."""

ASK_TORCH = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
maker = "AMD" if torch.version.hip else "NVIDIA"
name = torch.cuda.get_device_name(0) if count else ""
platform = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
print(json.dumps([maker, name, count, torch.__version__, platform]))
"""
LICENSE = "by sending it, you agree that it is published under this repository's license"
SUMMARY = "summary.json"
"""The results for programs. `python -m tools.who_ran` makes a row of them."""
STATES = ("passed", "differed", "failed", "could not run")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every part that hasn't passed yet.

    Return 0, 1 if a part failed or differed, and 2 without a GPU.
    """
    options = build_parser().parse_args(arguments)
    gpus = find_gpus()
    if gpus is None:
        print(
            "gpu-check: torch doesn't detect a GPU, so nothing was checked. For the reason,"
            " run `proflab doctor`.",
            file=sys.stderr,
        )
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * options.minutes
    results = {
        part.name: attempt(part, gpus, options.folder, options.again, deadline) for part in PARTS
    }
    # Write it before packing, so that the archive contains the report.
    page = report(gpus, results)
    (options.folder / "report.md").write_text(page, encoding="utf-8")
    (options.folder / SUMMARY).write_text(json.dumps(summary(gpus, results)), encoding="utf-8")
    archive = pack(options.folder, results.get("traces", {}).get("state") == "passed")
    print(f"{page}\n{archive}: attach it to an issue of this repository. {LICENSE.capitalize()}")
    return int(any(result["state"] in ("differed", "failed") for result in results.values()))


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check", description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="write results to this folder (default: %(default)s)",
    )
    parser.add_argument(
        "--again",
        nargs="*",
        default=[],
        metavar="PART",
        help="run these parts again even if they passed",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        metavar="N",
        help="don't start a part after this many minutes (default: %(default)s); the most important"
        " parts come first, and the same command continues later",
    )
    return parser


def find_gpus() -> Gpus | None:
    """Return the GPUs that torch detects, or None without a GPU.

    A separate process asks torch because importing torch can hang.
    """
    try:
        done = subprocess.run(
            [PYTHON, "-c", ASK_TORCH], capture_output=True, text=True, timeout=300, check=False
        )
        gpus = Gpus(*json.loads(done.stdout.strip().splitlines()[-1]))
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return None
    return gpus if gpus.count else None


def attempt(
    part: Part, gpus: Gpus, folder: Path, again: Sequence[str], deadline: float
) -> dict[str, str | float]:
    """Return the result of a part.

    If the part passed before, return the stored result. Otherwise, run it and write the new result
    at once.
    """
    place = folder / part.name / "result.json"
    if place.is_file() and part.name not in again:
        known = json.loads(place.read_text(encoding="utf-8"))
        if known["state"] == "passed":
            return known
    shutil.rmtree(place.parent, ignore_errors=True)
    place.parent.mkdir(parents=True)
    begin = time.monotonic()
    state, text = _try(part, gpus, place.parent, deadline)
    result = {"state": state, "text": text, "seconds": round(time.monotonic() - begin, 1)}
    # Write it in one step, because a check that is stopped here must not leave half a result.
    temporary = place.with_suffix(".tmp")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(place)
    print(f"{part.name}: {state}: {text}", flush=True)
    return result


def _try(part: Part, gpus: Gpus, folder: Path, deadline: float) -> tuple[str, str]:
    try:
        for name, command in part.commands(gpus, folder).items():
            left = deadline - time.monotonic()
            if left <= 0:
                return (
                    "could not run",
                    f"no time was left for {name}; the same command continues from here",
                )
            log = folder / f"{name}.log"
            if problem := run(command, log, min(left, 60 * part.minutes)):
                print(f"{name}: {problem}; for details, see {log}", file=sys.stderr)
                return "failed", f"{name}: {problem}"
        return "passed", part.check(gpus, folder)
    except NotHereError as reason:
        return "could not run", str(reason)
    except DiffersError as found:
        return "differed", str(found)
    except Exception as error:  # one broken part must not keep the others from running
        print(f"{part.name}: {error}", file=sys.stderr)
        return "failed", type(error).__name__


def run(command: Sequence[str], log: Path, limit_s: float) -> str:
    """Run one command for at most `limit_s` seconds with its output in `log`.

    Return a short description of what went wrong, or "".
    """
    with (
        log.open("wb") as said,
        log.with_suffix(".errors").open("wb") as errors,
        subprocess.Popen(command, stdout=said, stderr=errors, start_new_session=True) as process,
    ):
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            # Stop its child processes as well, because data loader workers would keep running.
            os.killpg(process.pid, signal.SIGKILL)
            return f"was stopped after {limit_s:.0f} s"
    return f"exit code {code}" if code else ""


def report(gpus: Gpus, results: dict[str, dict[str, str | float]]) -> str:
    """Return the page with the parts that passed, differed, failed, or couldn't run."""
    what = {part.name: part.what for part in PARTS}
    name, python = markdown_text(gpus.name), platform.python_version()
    machine = f"{gpus.count} x {name} ({gpus.maker}), torch {gpus.build}, Python {python}"
    table = "| part | | seconds | |\n| --- | --- | --- | --- |\n"
    head = f"# GPU check of {date.today().isoformat()}\n\n{machine}\n\n{table}"
    rows = [
        f"| {what[name]} | **{result['state']}** | {result['seconds']:.0f} |"
        f" {markdown_text(result['text'])} |"
        for state in STATES
        for name, result in results.items()
        if result["state"] == state
    ]
    return head + "\n".join(rows) + "\n"


def summary(gpus: Gpus, results: dict[str, dict[str, str | float]]) -> dict[str, object]:
    """Return the results for a program: the machine, and each part's state and text."""
    return {
        "date": date.today().isoformat(),
        "maker": gpus.maker,
        "gpu": gpus.name,
        "count": gpus.count,
        "platform": gpus.platform,
        "torch": gpus.build,
        "python": platform.python_version(),
        "license": LICENSE,
        "parts": {
            part.what: {key: results[part.name][key] for key in ("state", "text")} for part in PARTS
        },
    }


def pack(folder: Path, traced: bool) -> Path:
    """Write the archive: report, summary and, if recorded, the publishable part of the traces.

    Logs and other files stay on this machine.
    """
    archive = folder.with_name(f"{folder.name}.tar.gz")
    with tempfile.TemporaryDirectory() as name, tarfile.open(archive, "w:gz") as target:
        place = Path(name)
        for one in ("report.md", SUMMARY):
            shutil.copy(folder / one, place)
        for trace in sorted(folder.glob("traces/*/trace_rank0*.json.gz")) if traced else ():
            publish(trace, place / "traces" / trace.parent.name / "trace_rank0.json.gz")
            (metrics,) = trace.parent.glob("metrics_rank0_of_*.jsonl")
            run = json.loads(metrics.read_text(encoding="utf-8").splitlines()[0])
            (place / "traces" / trace.parent.name / "metrics_rank0_of_1.jsonl").write_text(
                json.dumps(published_run(run)), encoding="utf-8"
            )
        target.add(place, folder.name, filter=anonymous)
    return archive


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry without its owner."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    raise SystemExit(main())
