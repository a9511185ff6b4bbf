"""Signals, dead ranks, two runs in a folder, odd launchers, hostile archives, full disks: what the
trainer does.

    python -m benchmarks.bench_attacks --seed 1 --page

Each try is a process of its own, a copy of this one. Whatever happens, its files have to be whole
or absent, it has to end by itself with at most one line and the exit code that docs/packages.md
states, and no process may stay. `--page` writes the table between the page's two marks.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Process
from pathlib import Path
from unittest.mock import patch

from benchmarks.bench_kills import Task, contents, is_whole, log_of, preload, started
from benchmarks.page import RELIABILITY, write_part
from cifar_train import cli, models
from cifar_train.data import cifar100
from cifar_train.data.download import ARCHIVE_NAME, download_cifar100
from tests.cifar_train.cifar_files import md5, write_archive, write_cifar100
from tests.cifar_train.test_data import Payload
from tests.cifar_train.test_distributed import free_port
from tests.cifar_train.test_download import archive_of, odd_member
from tests.cifar_train.tiny_models import TINY_MODELS
from tidyprof.errors import UserError

PATIENCE_S = 120
"""Longest time for a process to end: many times what it takes."""

TRAINING = "--data synthetic --device cpu -bs 4 --num-workers 2 --precision float32 --run-dir run"
PROFILED = (
    f"{TRAINING} -ms 9 --torch-profile --profile-wait 1 --profile-warmup 1 --profile-active 1"
    " --profile-repeat 3"
)
ENDLESS = f"{TRAINING} -ms 100000 --num-workers 0 --rendezvous-timeout 15"


@dataclass
class Row:
    """What was done how often, how often it met a running process, and what was wrong."""

    what: str
    tries: int = 0
    caught: int = 0
    faults: list[str] = field(default_factory=list)


_WHY = re.compile(
    r"error: |cifar_train: (?:stopped by|rank \d+ stops|.* failed)|Traceback|\w+Error"
)


class Trainer:
    """A trainer in a process and a session of its own, begun once `ready`."""

    def __init__(
        self, folder: Path, options: str, before: Callable[[], object] = lambda: None
    ) -> None:
        self.folder, self._ready = folder, folder.with_name(f"{folder.name}.ready")

        def run() -> None:
            os.setsid()
            before()
            self._ready.touch()
            code = cli.main(options.split())
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

        self.process: Process = started(Task("trainer", run, 0), folder)
        while not self._ready.exists() and self.process.is_alive():
            time.sleep(0.001)

    def end(self) -> int:
        """Its exit code; -99 where it did not end by itself."""
        self.process.join(PATIENCE_S)
        if self.process.exitcode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.join()
            return -99
        return self.process.exitcode

    def errors(self) -> list[str]:
        """Lines in which it said why it ended."""
        lines = log_of(self.folder).read_text(errors="replace").splitlines()
        return [line for line in lines if _WHY.match(line)]

    def faults(self, code: int, right: Sequence[int]) -> list[str]:
        """What is wrong with how it ended."""
        found = [f"exit code {code}"] if code not in right else []
        errors = self.errors()
        if len(errors) > 1 or "Traceback" in log_of(self.folder).read_text(errors="replace"):
            found.append(f"said {errors}")
        files = contents(self.folder)
        found += [
            f"half of {name}" for name, file in files.items() if not is_whole(FILES, name, file)
        ]
        if code >= 0:
            found += [
                f"left {name}"
                for name in files
                if any(part.startswith(".") for part in Path(name).parts)
            ]
        if self._stays():
            found.append("a process stays")
        return found

    def _stays(self) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while of_session(self.process.pid):
            if time.monotonic() > deadline:
                os.killpg(self.process.pid, signal.SIGKILL)
                return True
            time.sleep(0.1)
        return False


FILES = Task("trainer", lambda: None, 0, same=False)


def of_session(leader: int) -> list[int]:
    """The living processes of a session (field 6 of /proc/PID/stat; Z is one that has ended)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found


def signals(folder: Path, draw: random.Random, count: int) -> Iterator[Row]:
    """Signals at random moments of a trainer that profiles three cycles; Ctrl-C reaches its
    loaders, too.
    """
    whole = Trainer(folder / "whole", PROFILED)
    begin = time.monotonic()
    if whole.end():
        raise RuntimeError(log_of(whole.folder).read_text())
    length_s = time.monotonic() - begin
    for number, right in (
        (signal.SIGKILL, (0, -9)),
        (signal.SIGTERM, (0, 143, -15, 2)),
        (signal.SIGINT, (0, 130)),
    ):
        row = Row(f"{number.name} while it profiles and writes")
        for _ in range(count):
            trainer = Trainer(folder / f"{number.name}{row.tries}", PROFILED)
            time.sleep(draw.random() * length_s)
            row.tries += 1
            row.caught += trainer.process.is_alive()
            with suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGINT else os.kill)(trainer.process.pid, number)
            code = trainer.end()
            row.faults += trainer.faults(code, right)
        yield row


def dead_ranks(folder: Path, draw: random.Random, count: int) -> Iterator[Row]:
    """One of two ranks killed at a random moment; the other has to say so and to end."""
    row, longest_s = Row(""), 0.0
    for _ in range(count):
        port, ranks = str(free_port()), []
        for rank in "01":
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_PORT": port}
            variables = place | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
            name = f"ranks{row.tries}_{rank}"
            options = ENDLESS.replace("--run-dir run", f"--run-dir {folder}/ranks{row.tries}")
            ranks.append(
                Trainer(
                    folder / name, options, lambda variables=variables: os.environ.update(variables)
                )
            )
        victim = row.tries % 2
        time.sleep(draw.random() * 12)
        row.tries += 1
        row.caught += ranks[victim].process.is_alive()
        ranks[victim].process.kill()
        begin = time.monotonic()
        code = ranks[1 - victim].end()
        longest_s = max(longest_s, time.monotonic() - begin)
        row.faults += ranks[1 - victim].faults(code, (1, 2))
        row.faults += [] if ranks[1 - victim].errors() else ["said nothing"]
    row.what = f"one of two ranks (gloo) killed; the other ended after at most {longest_s:.0f} s"
    yield row


def two_runs(folder: Path, count: int) -> Iterator[Row]:
    """Two runs at the same time in one folder: one of them is sent away."""
    row = Row("two runs at the same time in one --run-dir")
    for _ in range(count):
        options = PROFILED.replace("--run-dir run", f"--run-dir {folder}/shared{row.tries}")
        pair = [Trainer(folder / f"pair{row.tries}_{number}", options) for number in range(2)]
        codes = [trainer.end() for trainer in pair]
        row.tries += 1
        row.caught += sorted(codes) == [0, 2]
        for trainer, code in zip(pair, codes, strict=True):
            row.faults += trainer.faults(code, (0, 2))
        files = contents(folder / f"shared{row.tries - 1}")
        row.faults += [
            f"half of {name}" for name, file in files.items() if not is_whole(FILES, name, file)
        ]
        row.faults += [f"left {name}" for name in files if name.startswith(".")]
    yield row


VARIABLES = (
    *(
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
    ),
    *(
        "SLURM_PROCID",
        "SLURM_NPROCS",
        "SLURM_LOCALID",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
    ),
    *(
        "SLURM_NNODES",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "PMIX_NAMESPACE",
    ),
    *("PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_APID", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
NONSENSE = (
    *(
        "",
        " ",
        "-1",
        "0",
        "1",
        "2",
        "7",
        "1.5",
        "1e3",
        "0x1",
        "\u0663",
        "\uff11",
        "NaN",
        "a b",
        "node1;id",
        "9" * 30,
    ),
    *(
        "x\ny",
        "\x1b[31m",
        "127.0.0.1",
        "no.such.host.invalid",
        "65536",
        "70000",
        "\udced\udca0\udc80",
    ),
)


def nonsense(folder: Path, draw: random.Random, count: int) -> Iterator[Row]:
    """Variables of launchers with values that no launcher writes."""
    row = Row("nonsense in the variables of Slurm, Open MPI, PALS and torchrun")
    options = (
        TRAINING.replace("--num-workers 2", "--num-workers 0") + " -ms 2 --rendezvous-timeout 3"
    )
    for _ in range(count):
        launcher = draw.choice(("", "SLURM", "OMPI", "P", "RANK", "WORLD"))
        names = [name for name in VARIABLES if name.startswith(launcher) or draw.random() < 0.4]
        drawn = {name: draw.choice(NONSENSE) for name in names if draw.random() < 0.8}
        trainer = Trainer(
            folder / f"odd{row.tries}", options, lambda drawn=drawn: os.environ.update(drawn)
        )
        code = trainer.end()
        row.tries += 1
        row.caught += code == 2
        row.faults += [f"{drawn}: {fault}" for fault in trainer.faults(code, (0, 1, 2))]
    yield row


def archives(folder: Path) -> Iterator[Row]:
    """Archives and files whose checksums are right, of somebody who means harm."""
    row, good, outside = Row("hostile archives of CIFAR-100"), folder / "good", folder / "outside"
    checksums = write_cifar100(good, train=100, test=20)
    write_archive(good, folder / "good.tar.gz")
    outside.write_text("mine")
    names = (
        "../outside",
        str(outside),
        "cifar-100-python/../../outside",
        "cifar-100-python",
        "x" * 9999,
        "a\nb",
        "\0",
    )
    hostile = [archive_of({name: b"theirs"}) for name in names]
    hostile += [odd_member(bytes([kind]), str(outside)) for kind in b"1234567KLSVgx"]
    hostile += [
        archive_of({"cifar-100-python/train": bytes(200_000_000)}),
        (folder / "good.tar.gz").read_bytes()[:-2000],
    ]
    for content in hostile:
        row.tries += 1
        data = folder / f"data{row.tries}"
        data.mkdir()
        (data / ARCHIVE_NAME).write_bytes(content)
        try:
            download_cifar100(
                data, url="file:///nowhere", archive_md5=md5(content), file_md5s=checksums
            )
            row.faults.append(f"archive {row.tries} was taken")
        except UserError:
            row.caught += 1
        row.faults += [f"archive {row.tries} left {name}" for name in contents(data)]
        row.faults += ["wrote outside"] if outside.read_text() != "mine" else []
    yield row
    row = Row("pickles with a payload in its place, some with the checksum of the real one")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for value in (Payload(folder / "ran"), {b"data": Payload(folder / "ran")}):
            for is_known in (True, False):
                row.tries += 1
                path = good / cifar100.FOLDER / "train"
                path.write_bytes(pickle.dumps(value, protocol))
                known = cifar100.md5_of(path) if is_known else checksums["train"]
                try:
                    with patch.dict(cifar100.FILE_MD5S, train=known):
                        cifar100.read_images(good)
                    row.faults.append(f"protocol {protocol} was read")
                except UserError:
                    row.caught += 1
                row.faults += ["a payload ran"] if (folder / "ran").exists() else []
    yield row


def full_disks(folder: Path, draw: random.Random, limits: int, disks: int) -> Iterator[Row]:
    """No file may grow beyond a limit; a file system that somebody fills while the trainer runs."""
    row = Row("files that may not grow beyond a drawn size")
    for _ in range(limits):
        size = int(2 ** draw.uniform(12, 22))
        limit = (size, resource.RLIM_INFINITY)
        trainer = Trainer(
            folder / f"small{row.tries}",
            PROFILED,
            lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )
        code = trainer.end()
        row.tries += 1
        row.caught += code == 2
        row.faults += [f"{size} bytes: {fault}" for fault in trainer.faults(code, (0, 2))]
    yield row
    if os.geteuid():
        return
    row = Row("a disk that is filled while it profiles and writes")
    for _ in range(disks):
        with memory_disk(folder / f"disk{row.tries}") as disk:
            options = PROFILED.replace("--run-dir run", f"--run-dir {disk}/run")
            trainer = Trainer(folder / f"filled{row.tries}", options)
            time.sleep(draw.random() * 6)
            fill(disk / "filler")
            code = trainer.end()
            row.tries += 1
            row.caught += code == 2
            row.faults += trainer.faults(code, (0, 2))
            files = contents(disk / "run")
            row.faults += [
                f"half of {name}" for name, file in files.items() if not is_whole(FILES, name, file)
            ]
            row.faults += [f"left {name}" for name in files if name.startswith(".")]
    yield row


@contextmanager
def memory_disk(place: Path) -> Iterator[Path]:
    """A file system of 64 MB in memory."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(2**16)):
                pass
        except OSError:
            return


def table(rows: Sequence[Row], seed: int) -> str:
    """The rows in Markdown."""
    lines = [
        "",
        (
            "Each try is a trainer in a process of its own. Its files have to be whole or absent,"
            " it has to end by itself with one line at most and a documented exit code, and no"
            " process of it may stay. *Met* are the tries in which the signal found it running, or"
            " the trainer refused what it was given."
        ),
        "",
        f"Seed {seed}; {os.cpu_count()} cores, by `make reliability`.",
        "",
        "| What | tries | met | faults |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {row.what} | {row.tries} | {row.caught} | {len(row.faults)} |" for row in rows]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Attack, show the table; returns 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--page", action="store_true", help="write the table into docs/reliability.md"
    )
    parser.add_argument("--only", default="", help="the experiments whose name has this in it")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, patch.dict(models.MODELS, TINY_MODELS):
        folder = Path(name)
        preload(Task("trainer", lambda: cli.main(PROFILED.split()), 0), folder)
        experiments = {
            "signals": lambda: signals(folder, random.Random(options.seed), 10),
            "ranks": lambda: dead_ranks(folder, random.Random(options.seed), 6),
            "runs": lambda: two_runs(folder, 5),
            "nonsense": lambda: nonsense(folder, random.Random(options.seed), 60),
            "archives": lambda: archives(folder),
            "disks": lambda: full_disks(folder, random.Random(options.seed), 20, 8),
        }
        for experiment, begin in experiments.items():
            if options.only in experiment:
                for row in begin():
                    rows.append(row)
                    print(
                        f"{row.what}: {row.tries} tries, {row.caught} met",
                        *row.faults,
                        sep="\n  ",
                        file=sys.stderr,
                    )
    text = table(rows, options.seed)
    print(text)
    if options.page:
        write_part(RELIABILITY, "attacks", text)
    return int(any(row.faults for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
