"""What readers and analyses make of damaged files, many thousands of them; writes the figures into
docs/reliability.md.

`make reliability`, or `make reliability INPUTS=1000000` for a night. A number makes each input, so
that one that is worth a look can be made again: `python -m benchmarks.reliability --again "GROUP"
NUMBER FOLDER`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import tidyprof
from benchmarks.page import RELIABILITY, write_part
from benchmarks.peak_memory import peak_bytes
from tests.tidyprof import damage
from tests.tidyprof.compute_writer import two_kernels, wide_rows, write_csv
from tests.tidyprof.sound_files import Sound, sound_files
from tidyprof.io.byte_stream import MANY_CELLS, SQLITE_MAGIC
from tidyprof.io.plain_pickle import plain_objects

INPUTS = 20_000
GROUPS = (
    *(
        "torch",
        "rocprofv3",
        "rocprof 1",
        "rocprof-sys",
        "rocprof-compute",
        "system",
        "perfetto",
        "rocpd",
        "rpd",
    ),
    *("memory snapshot", "flight recorder", "folder"),
)
RECORDER, FOLDER = GROUPS[-2:]
DUMPS = RELIABILITY.parents[1] / "lessons" / "15_hang" / "recorded" / "dead"
WHOLE_ROWS = 0.2
"""Part of the inputs that is damaged in whole rows, so that nothing but the numbers can tell."""

ANALYSES = (
    *(
        "blocked_calls",
        "busy",
        "call_stacks",
        "collectives",
        "gaps",
        "kernels",
        "launches",
        "memory_blocks",
        "modules",
    ),
    *(
        "operators",
        "overlap",
        "phases",
        "ranks",
        "roofline_points",
        "speed_of_light",
        "step_budget",
    ),
    "steps",
)
ANALYSES_EACH = 3
"""So many of them, drawn by chance, are asked about each input that is read."""

NUMBERS = (*damage.ODD_NUMBERS, b"1", b"7", b"300", b"4000000000")
"""What takes the place of a number: odd ones, and others that could be meant."""

MEMORY_BYTES = 6 * 2**30
"""Address space of the process that reads; without any input it takes a quarter of that."""

LONGEST_S = 120
"""An input that takes longer has its process ended; on a busy machine the start takes long, too."""

SLOW_S, LARGE_BYTES = 20, 10**9
"""Processor time of an input, and memory of a process, from which on they are shown with the
faults.
"""


def inputs_of(group: str, folder: Path) -> list[Sound]:
    """The sound files of a group."""
    if group == "rocprof-compute":
        content = write_csv(folder / "pmc_perf.csv", wide_rows(two_kernels())).read_bytes()
        return [Sound("pmc_perf.csv", content, tidyprof.read_rocprof_compute)]
    if group == RECORDER:
        return [_dump(path) for path in sorted(DUMPS.glob("rank_*"))]
    if group == FOLDER:
        return [
            sound for sound in inputs_of("rocprofv3", folder) if not sound.name.endswith(".json")
        ]
    return [sound for name, sound in sound_files(folder).items() if name.startswith(group)]


def _dump(path: Path) -> Sound:
    """A dump as it was written; of the last rank in JSON, the other way that PyTorch writes it."""
    content, is_text = path.read_bytes(), path.name == max(one.name for one in DUMPS.glob("rank_*"))
    if is_text:
        content = json.dumps(plain_objects(path, content)).encode()
    return Sound(path.name, content, tidyprof.read_flight_recorder, is_text)


def changed(data: bytes, random: Random, is_text: bool) -> bytes:
    """The data with one place flipped, cut, repeated, overwritten, or with something odd in it."""
    data = data or b"\0"  # an earlier change may have taken everything
    place, target = random.randrange(len(data) + 1), random.randrange(len(data) + 1)
    length = random.choice((1, 4, 30, 500))
    ways = [
        lambda: damage.flipped(data, place, random.randrange(256)),
        lambda: damage.flipped(data, place, data[target - 1]),
        lambda: damage.cut(data, place, place + length),
        lambda: damage.inserted(data, place, place + length, target),
        lambda: damage.overwritten(data, place, place + length, target),
        lambda: (
            data[:place]
            if random.random() < 0.3
            else damage.flipped(data, place, data[place - 1] ^ 1)
        ),
    ]
    if is_text:
        # Most of a text stays sound where only a number is another one.
        odd = random.choice(damage.ODD_TEXTS)
        ways += [
            lambda: data[:place] + odd + data[place:],
            *5 * [lambda: damage.replaced_number(data, place, random.choice(NUMBERS))],
        ]
    return random.choice(ways)()


def whole_rows_changed(path: Path, random: Random, is_text: bool) -> None:
    """Damage that leaves the file sound, as far as its syntax tells: to whole rows, objects or
    tables of it.
    """
    if is_text:
        path.write_bytes(random.choice(TEXT_DAMAGE)(path.read_bytes(), random))
    elif path.read_bytes().startswith(SQLITE_MAGIC):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA legacy_alter_table = ON")
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
            random.choice(TABLE_DAMAGE)(connection, random.choice(names)[0])
            connection.commit()


def _some_lines(data: bytes, random: Random, change: Callable[[bytes], bytes]) -> bytes:
    """The text with some of its lines, one after the other, changed."""
    lines = data.split(b"\n")
    first = random.randrange(len(lines))
    last = first + random.choice((1, 2, 8, len(lines)))
    return b"\n".join([*lines[:first], *map(change, lines[first:last]), *lines[last:]])


def _with_new_number(line: bytes) -> bytes:
    """A line, and the same once more with another number where its first one is."""
    return line + b"\n" + re.sub(rb"\d+", lambda number: b"1%b" % number[0], line, count=1)


def _twice(connection: sqlite3.Connection, table: str) -> None:
    """All rows of a table once more, under new numbers."""
    names = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    values = [
        f'(SELECT max(id) FROM "{table}") + id' if name == "id" else f'"{name}"' for name in names
    ]
    connection.execute(f'INSERT OR IGNORE INTO "{table}" SELECT {", ".join(values)} FROM "{table}"')


def _as_view(connection: sqlite3.Connection, table: str) -> None:
    connection.execute(f'ALTER TABLE "{table}" RENAME TO hidden')
    connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM hidden')


def _renamed(connection: sqlite3.Connection, table: str) -> None:
    connection.execute(f'ALTER TABLE "{table}" RENAME TO "{table[:-1]}~"')


TEXT_DAMAGE: tuple[Callable[[bytes, Random], bytes], ...] = (
    lambda data, random: _some_lines(data, random, lambda line: line + b"\n" + line),
    lambda data, random: _some_lines(data, random, _with_new_number),
    lambda data, random: _some_lines(data, random, lambda line: line.replace(b",", b";")),
    lambda data, random: _some_lines(data, random, lambda line: bytes(len(line))),
    lambda data, random: re.sub(
        rb"\{[^{}]*\}", lambda found: random.choice((b"{}", found[0])), data
    ),
    lambda data, random: damage.replaced_number(data, random.randrange(len(data)), b"16384"),
    lambda data, random: data + b"\n" * random.choice((100, MANY_CELLS // 2)),
)
"""Rows twice, twice under new numbers, with another separator, of zeros; emptied objects; outliers;
empty lines.
"""

TABLE_DAMAGE = (_twice, _as_view, _renamed)


def write_input(group: str, number: int, sounds: Sequence[Sound], folder: Path) -> Path:
    """The input of this number: a sound file changed in one to four places, one in four packed
    before or after.

    One in five is changed in whole rows instead. Of a folder, which holds all sound files of the
    group, one file is.
    """
    random = Random(f"{group} {number}")
    sound = random.choice(sounds)
    if group == FOLDER or (group == RECORDER and random.random() < WHOLE_ROWS):
        return _damaged_folder(sound, sounds, random, folder / "run")
    if group == RECORDER:
        return _damaged_dump(sound, sounds, random, folder / "run")
    if random.random() < WHOLE_ROWS:
        path = sound.write(folder)
        whole_rows_changed(path, random, sound.is_text)
        return path
    packed = partial(gzip.compress, mtime=0)
    before, after = random.choice([*6 * [(bytes, bytes)], (packed, bytes), (bytes, packed)])
    path = folder / sound.name
    path.write_bytes(after(_changed_often(before(sound.content), random, sound.is_text)))
    return path


def _changed_often(data: bytes, random: Random, is_text: bool) -> bytes:
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = changed(data, random, is_text)
    return data


def _damaged_dump(sound: Sound, sounds: Sequence[Sound], random: Random, folder: Path) -> Path:
    """The dumps of all ranks, of which one is changed in one to four places."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for one in sounds:
        one.write(folder)
    (folder / sound.name).write_bytes(_changed_often(sound.content, random, sound.is_text))
    return folder


def _damaged_folder(sound: Sound, sounds: Sequence[Sound], random: Random, folder: Path) -> Path:
    """The files of a run, one of which is damaged at its start or in its rows, is there twice, or
    is no file.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for one in sounds:
        one.write(folder)
    path = folder / sound.name
    start = random.randrange(1, len(sound.content))
    ways = [
        lambda: path.write_bytes(sound.content[start:]),
        lambda: path.write_bytes(bytes(start) + sound.content[start:]),
        lambda: shutil.copy(path, folder / f"2_{sound.name}"),
        lambda: (path.unlink(), path.symlink_to(folder / "nowhere")),
        lambda: (path.unlink(), path.mkdir()),
        lambda: (path.unlink(), os.mkfifo(path)),
        lambda: whole_rows_changed(path, random, sound.is_text),
    ]
    random.choice(ways)()
    return folder


def tried(
    path: Path, number: int, counts: Counter[str], faults: list[str], group: str = ""
) -> None:
    """Read one input, ask some analyses, and count what became of it; faults are exceptions that
    are none for users.
    """
    is_recorder = group == RECORDER
    try:
        profile = tidyprof.read_flight_recorder(path) if is_recorder else tidyprof.read(path)
    except tidyprof.ProfileReadError:
        counts["refused"] += 1
        return
    except Exception as error:
        counts["other"] += 1
        faults.append(f"{number}: read: {error!r}"[:300])
        return
    counts["read"] += 1
    for name in (
        ("who_is_missing",) if is_recorder else Random(number).sample(ANALYSES, ANALYSES_EACH)
    ):
        counts["analyses"] += 1
        try:
            getattr(tidyprof, name)(profile)
        except ValueError:
            counts["analyses refused"] += 1
        except Exception as error:
            counts["analyses other"] += 1
            faults.append(f"{number}: {name}: {error!r}"[:300])


def child(group: str, first: int, last: int, log: Path) -> None:
    """Try inputs in this process, with bounded memory, and keep the result so far in `log` after
    each of them.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("ignore")
    counts, faults, longest = Counter(), [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        sounds = inputs_of(group, Path(folder))
        # Imports are no part of an input's time.
        sounds[0].read(DUMPS if group == RECORDER else sounds[0].write(Path(folder)))
        for number in range(first, last + 1):
            result = {
                "next": number,
                "counts": counts,
                "faults": faults,
                "longest": longest,
                "peak": peak_bytes(),
            }
            log.write_text(json.dumps(result))
            if number < last:
                path = write_input(group, number, sounds, Path(folder))
                start = time.process_time()
                tried(path, number, counts, faults, group)
                longest = max(longest, taken := time.process_time() - start)
                if taken > SLOW_S or peak_bytes() > LARGE_BYTES:
                    faults.append(f"{number}: {taken:.0f} s, {peak_bytes() / 1e9:.1f} GB")
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_group(group: str, inputs: int) -> dict[str, Any]:
    """Try all inputs of a group; where a process ends or hangs, the next goes on behind the input
    at fault.
    """
    counts, faults, longest, peak, first = Counter(), [], 0.0, 0, 0
    environment = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        while first < inputs:
            log.write_text("")
            command = [
                sys.executable,
                "-m",
                "benchmarks.reliability",
                "--child",
                group,
                str(first),
                str(inputs),
                log,
            ]
            done = _code_of(
                subprocess.Popen(command, cwd=RELIABILITY.parents[1], env=environment), log
            )
            if not log.read_text():
                raise RuntimeError(f"the process that reads could not start ({done})")
            found = json.loads(log.read_text())
            counts += Counter(found["counts"])
            faults += found["faults"]
            longest, peak, first = (
                max(longest, found["longest"]),
                max(peak, found["peak"]),
                found["next"],
            )
            if done:
                counts["ended"] += 1
                faults.append(f"{first}: the process ended with {done}")
                first += 1
    return {"counts": counts, "faults": faults, "longest": longest, "peak": peak}


def _code_of(process: subprocess.Popen[bytes], log: Path) -> int:
    """The exit code of a process; it is killed where nothing has changed for LONGEST_S."""
    while True:
        changed_at = log.stat().st_mtime_ns
        try:
            return process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            if log.stat().st_mtime_ns == changed_at:
                process.kill()


def figures(inputs: int) -> str:
    """The table for the page; faults go to standard error."""
    lines = [
        (
            "| format | inputs | read | refused | other exceptions | processes ended | longest, s |"
            " memory, MiB | analyses asked | answered | refused | other exceptions |"
        ),
        "| --- " * 12 + "|",
    ]
    total = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(partial(run_group, inputs=inputs // len(GROUPS)), GROUPS)
        for group, found in zip(GROUPS, results, strict=True):
            print(f"{group}: {found['counts']}", *found["faults"][:20], sep="\n  ", file=sys.stderr)
            counts = Counter(found["counts"])
            own = sum(counts[name] for name in ("read", "refused", "other", "ended"))
            answered = counts["analyses"] - counts["analyses refused"] - counts["analyses other"]
            numbers = [own, *(counts[name] for name in ("read", "refused", "other", "ended"))]
            asked = [
                counts["analyses"],
                answered,
                counts["analyses refused"],
                counts["analyses other"],
            ]
            measured = [f"{found['longest']:.2f}", f"{found['peak'] / 2**20:.0f}"]
            cells = [
                *(f"{number:,}" for number in numbers),
                *measured,
                *(f"{number:,}" for number in asked),
            ]
            lines.append(f"| {group} | {' | '.join(cells)} |")
            total += own
    lines += [
        "",
        (
            f"Measured, {total:,} inputs on {os.cpu_count()} cores; times are the processor's,"
            " memory is that of the whole process."
        ),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the figures into the page, or one input into a folder."""
    parser = argparse.ArgumentParser(
        description="Damage files, read them, and write the figures into the page."
    )
    parser.add_argument(
        "inputs", nargs="?", type=int, default=INPUTS, help=f"how many (default: {INPUTS})"
    )
    parser.add_argument(
        "--again", nargs=3, metavar=("GROUP", "NUMBER", "FOLDER"), help="write one input, and end"
    )
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        group, first, last, log = options.child
        child(group, int(first), int(last), Path(log))
    elif options.again:
        group, number, folder = options.again[0], int(options.again[1]), Path(options.again[2])
        print(write_input(group, number, inputs_of(group, folder), folder))
    else:
        write_part(RELIABILITY, "inputs", figures(options.inputs))


if __name__ == "__main__":
    main()
