"""rocprofv3's input files: a list of jobs (JSON, YAML), or lines of counters (TXT), one pass each."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from proflab.standins.errors import ToolError


def jobs_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """For each job the sub-folder of its output, and its options. Raises ToolError as rocprofv3 does."""
    readers = {".json": _json_jobs, ".yaml": _yaml_jobs, ".yml": _yaml_jobs, ".txt": _counter_lines}
    if path.suffix not in readers:
        raise ToolError(
            f"Fatal error: Input file '{path}' does not have a recognized extension (.txt, .json, .yaml, .yml)", 1
        )
    try:
        jobs = readers[path.suffix](path.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"Fatal error: {path}: {error}", 1) from error
    prefix = "pmc_" if path.suffix == ".txt" else "pass_"
    # rocprofv3 numbers the passes only where there are several, or where counters are collected.
    numbered = len(jobs) > 1 or any(job.get("pmc") for job in jobs)
    return [(f"{prefix}{number}" if numbered else "", job) for number, job in enumerate(jobs, start=1)]


def merged(options: argparse.Namespace, job: dict[str, Any]) -> argparse.Namespace:
    """The command line's options together with a job's. Raises ToolError where they disagree or are unknown."""
    values = dict(vars(options))
    for name, value in job.items():
        if name not in values:
            raise ToolError(f"Fatal error: {name!r} in the input file is not an option of rocprofv3", 1)
        if values[name] is not None and values[name] != value and name != "collection_period_unit":
            raise ToolError(f"RuntimeError: conflicting value for {name} : {values[name]} vs {value}", 1)
        values[name] = value
    return argparse.Namespace(**values)


def _json_jobs(text: str) -> list[dict[str, Any]]:
    return list(json.loads(text)["jobs"])


def _yaml_jobs(text: str) -> list[dict[str, Any]]:
    try:
        import yaml
    except ImportError as error:
        raise ToolError("Fatal error: YAML package is not installed; use JSON, or pip install pyyaml", 1) from error
    try:
        return list(yaml.safe_load(text)["jobs"])
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error


def _counter_lines(text: str) -> list[dict[str, Any]]:
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [{"pmc": line.removeprefix("pmc:").split()} for line in lines if line.startswith("pmc:")]
