"""Kills what writes files at random moments: files are whole or absent, a rerun recovers, and
nothing is left behind.

    python -m benchmarks.bench_kills --kills 200 --minutes 10 --seed 1 --page

Every task runs once undisturbed, which gives its length and its files. Then copies of it get
SIGKILL at a moment drawn evenly from that length. After each, the files there are compared with
those of the undisturbed run or read as a whole, and the task runs again, to its end. `--page`
writes the table between the page's two marks.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import gzip
import importlib
import json
import multiprocessing
import os
import platform
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.page import RELIABILITY, write_part
from tests.cifar_train.cifar_files import md5, write_archive, write_cifar100
from tests.cifar_train.tiny_models import TINY_MODELS

REPOSITORY = Path(__file__).resolve().parents[1]
PATIENCE_S = 120
"""Longest undisturbed run: many times what it takes."""


@dataclass
class Task:
    """Something that writes files into the folder it is called in; `share` is its part of all
    kills.

    same -- its files are the same bytes in each run.
    """

    name: str
    run: Callable[[], object]
    share: float
    same: bool = True
    length_s: float = 0.0
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Tally:
    """What was seen of a task."""

    kills: int = 0
    caught: int = 0
    broken: list[str] = field(default_factory=list)
    failed: int = 0
    left: list[str] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    """Kill, show the table; returns 1 if anything was broken, left behind, or did not recover."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10, help="begin no kill after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--page", action="store_true", help="write the table into docs/reliability.md"
    )
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.minutes
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, tasks(Path(folder)) as all_tasks:
        gc.freeze()
        order = [task for task in all_tasks for _ in range(round(options.kills * task.share))]
        draw.shuffle(order)
        tallies = {task.name: Tally() for task in all_tasks}
        for task in all_tasks:
            preload(task, Path(folder))
            undisturbed(task, Path(folder))
        for number, task in enumerate(order):
            if time.monotonic() > deadline:
                break
            kill_once(
                task,
                Path(folder) / f"kill{number}",
                draw.random() * task.length_s,
                tallies[task.name],
            )
    text = table(tallies, options.seed)
    print(text)
    if options.page:
        write_part(RELIABILITY, "kills", text)
    return int(any(tally.broken or tally.failed or tally.left for tally in tallies.values()))


# One task in a process of its own


def started(task: Task, folder: Path) -> multiprocessing.Process:
    """A copy of this process, libraries loaded, that does the task in the folder; its exit code is
    0 for success.
    """

    def work() -> None:
        os.chdir(folder)
        os.dup2(os.open(log_of(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = 1
        try:
            code = int(bool(task.run()))
        finally:
            os._exit(code)

    folder.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def log_of(folder: Path) -> Path:
    """What the task prints, beside the folder of its files."""
    return folder.with_name(f"{folder.name}.log")


def preload(task: Task, folder: Path) -> None:
    """Import here what the task imports, so that no copy has to, and kills meet its work."""
    names = folder / "modules"
    run = task.run
    noting = dataclasses.replace(
        task, run=lambda: (run(), names.write_text("\n".join(sys.modules)))[0]
    )
    started(noting, folder / f"preload-{len(list(folder.iterdir()))}").join(PATIENCE_S)
    for name in names.read_text().splitlines():
        with suppress(Exception):  # some can only be imported by others
            importlib.import_module(name)


def undisturbed(task: Task, folder: Path) -> None:
    """Note how long the task takes and what it writes. Raises RuntimeError where it fails by
    itself.
    """
    place = folder / task.name.replace(" ", "-")
    begin = time.monotonic()
    process = started(task, place)
    process.join(PATIENCE_S)
    task.length_s = time.monotonic() - begin
    task.files = contents(place)
    print(f"{task.name}: {task.length_s:.1f} s, {', '.join(task.files)}", file=sys.stderr)
    if process.exitcode or not task.files:
        raise RuntimeError(
            f"{task.name} ended with {process.exitcode} and wrote {sorted(task.files)}"
        )


def kill_once(task: Task, folder: Path, moment_s: float, tally: Tally) -> None:
    """Kill it, look at its files, run it again to its end, and look at what is there."""
    process = started(task, folder)
    process.join(moment_s)
    process.kill()
    process.join()
    tally.kills += 1
    tally.caught += process.exitcode != 0
    tally.broken += [
        name for name, content in contents(folder).items() if not is_whole(task, name, content)
    ]
    again = started(task, folder)
    again.join(PATIENCE_S)
    found = contents(folder)
    tally.left += sorted(found.keys() - task.files.keys())
    if again.exitcode != 0 or not all(
        is_whole(task, name, found.get(name, b"")) for name in task.files
    ):
        tally.failed += 1
        print(
            f"{task.name}, exit code {again.exitcode}: {log_of(folder).read_text()[-2000:]}",
            file=sys.stderr,
        )


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, by its path there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def is_whole(task: Task, name: str, content: bytes) -> bool:
    """Whether a file is what the task writes; names with a point in front are unfinished, and no
    result.
    """
    if any(part.startswith(".") for part in Path(name).parts):
        return True
    if task.same:
        return content == task.files.get(name)
    try:
        text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
        if name.endswith(".jsonl"):
            return [json.loads(line)["record"] for line in text.splitlines()][-1] == "summary"
        return bool(json.loads(text)) if ".json" in name else text.endswith("\n")
    except (ValueError, OSError, EOFError, LookupError):
        return False


# The tasks


@contextmanager
def tasks(folder: Path) -> Iterator[list[Task]]:
    """What is killed, and a server on this machine that two of them fetch from."""
    from cifar_train import cli, models
    from proflab.standins.__main__ import main as standin
    from tidyprof.cli.main import main as tables

    models.MODELS.update(TINY_MODELS)
    # Steps of tiny models have no place among the recordings of the real ones.
    os.environ.update(
        PROFLAB_ROCM="6.4", no_proxy="127.0.0.1", GPUMODEL_CACHE=str(folder / "steps")
    )
    trace = next((REPOSITORY / "recordings" / "modelled-resnet" / "torch").glob("*.json.gz"))
    training = (
        "--data synthetic --device cpu -bs 4 -ms 6 --num-workers 0 --precision float32"
        " --torch-profile"
    )
    sampling = "amd-smi monitor -p -u -w 1 -i 2 --csv --file gpu.csv"
    with server(folder / "web") as address:
        yield [
            Task(
                "trainer",
                lambda: cli.main([*training.split(), "--run-dir", "run"]),
                0.25,
                same=False,
            ),
            Task("sampler", lambda: standin(sampling.split()), 0.15, same=False),
            Task("CIFAR-100", cifar100(folder / "web", address), 0.2),
            Task("recording", recording(folder / "web", address), 0.2),
            Task("convert", lambda: tables(["convert", str(trace), "out.json.gz"]), 0.1),
            Task("table", lambda: tables(["kernels", str(trace), "--csv", "out.csv"]), 0.1),
        ]


def cifar100(web: Path, address: str) -> Callable[[], object]:
    """Fetch and unpack a small data set of CIFAR-100's format."""
    from cifar_train.data.download import download_cifar100

    checksums = write_cifar100(web, train=2000, test=200)
    write_archive(web, web / "archive.tar.gz")
    archive = md5((web / "archive.tar.gz").read_bytes())
    url = f"{address}/archive.tar.gz"
    fetch = functools.partial(download_cifar100, url=url, archive_md5=archive, file_md5s=checksums)
    return lambda: fetch(Path("data")) is None


def recording(web: Path, address: str) -> Callable[[], object]:
    """Fetch a recording of three files into the cache."""
    import hashlib

    from proflab.recordings import Entry, RecordedFile, download

    files = []
    for number in range(3):
        content = random.Random(number).randbytes(2_000_000)
        (web / f"part{number}").write_bytes(content)
        url, digest = f"{address}/part{number}", hashlib.sha256(content).hexdigest()
        files.append(RecordedFile(f"killed/part{number}", digest, len(content), "recording", url))
    texts = dict.fromkeys(
        ("kind", "tool", "gpu", "workload", "licence", "licence_url", "copyright", "notes"), "text"
    )
    entry = Entry(name="killed", files=tuple(files), **texts)

    def fetch() -> None:
        os.environ.pop("PROFLAB_OFFLINE", None)
        os.environ["PROFLAB_CACHE"] = "cache"
        download(entry)

    return fetch


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A web server of a folder; its address."""
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def copyfile(self, *files: object) -> None:
            """Send; who was killed does not listen."""
            try:
                super().copyfile(*files)
            except OSError:
                self.close_connection = True

    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


# The result


def table(tallies: dict[str, Tally], seed: int) -> str:
    """The tallies in Markdown."""
    kills, caught = (
        sum(getattr(tally, name) for tally in tallies.values()) for name in ("kills", "caught")
    )
    lines = [
        "",
        (
            "Each task is killed at a moment drawn evenly from its length, its files are compared"
            " with those of a run that nobody disturbed or read to their end, and it runs again. A"
            " file has to be whole or absent, the rerun has to succeed, and after it nothing may"
            " lie there that an undisturbed run does not write."
        ),
        "",
        (
            f"{kills} kills (SIGKILL, seed {seed}), {caught} of them before the task's own end."
            f" Measured on {os.cpu_count()} cores with Python {platform.python_version()}, by `make"
            " reliability`."
        ),
        "",
        (
            "| Task | kills | caught it running | broken files | reruns that failed | files left"
            " after the rerun |"
        ),
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, tally in tallies.items():
        lines.append(
            f"| {name} | {tally.kills} | {tally.caught} | {cell(tally.broken)} | {tally.failed} |"
            f" {cell(tally.left)} |"
        )
    return "\n".join(lines)


def cell(names: list[str]) -> str:
    """How many, and which."""
    return f"{len(names)}: {', '.join(sorted(set(names)))}" if names else "0"


if __name__ == "__main__":
    raise SystemExit(main())
