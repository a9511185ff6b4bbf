"""Damage files in the terms of their format, and count how the readers react.

Run with: python -m benchmarks.mutations 1000

Each case takes a small valid file, changes one to three rows, fields, columns or records, and reads
the result. A case counts as `wrong` if reading ends with anything but a table or a ProfileReadError,
takes more than TIMEOUT_S seconds, or needs more than 1 GB. A case is also wrong if rows or times
are lost, or if times of the GPU are added, although the profile reports nothing: no warning, no
repair, and no other number of events left out. Changes that nobody can notice are left out, such as
another valid number, or a whole row that is missing.
"""

from __future__ import annotations

import csv
import io
import json
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

import tidyprof
from tidyprof import Profile, ProfileReadError
from tidyprof_tests.readers.kit import Event, samples, writers

TIMEOUT_S, MOST_BYTES = 20, 10**9
FORMATS = {
    "torch": "torch",
    "rocpd": "rocpd",
    "rpd": "rpd",
    "rocprofv3": "rocprofv3_csv",
    "rocprofv3 JSON": "rocprofv3_json",
    "Perfetto": "perfetto",
    "rocprof-compute": "rocprof_compute",
    "amd-smi": "system",
}
"""The name of each format's module in the test kit."""

ODD = ("", None, "NaN", "x", "-5", "1e400", "9" * 30)
"""Values that can't be a time, a number of a thread, or a count. The first three are missing values."""

Row = dict[str, Any]


def events() -> list[Event]:
    """Kernels with launches, calls and copies, without overlaps."""
    kinds = ("kernel", "kernel", "copy", "HIP_RUNTIME_API_EXT")
    return [
        Event(
            kind,
            f"{kind}_{place % 7}",
            20_000 * place,
            4_000 + place,
            place,
            launched=kind == "kernel",
        )
        for place in range(48)
        for kind in kinds[place % 4 : place % 4 + 1]
    ]


# Changes of a list of rows


def changed_rows(rows: list[Row], rng: random.Random, may_lack: bool = False) -> str:
    """Change one or several rows in place, and return a description of the change.

    - may_lack: whether a missing value says only that it wasn't measured.
    """
    place = rng.randrange(len(rows))
    row = rows[place]
    name = rng.choice([*row]) if row else ""
    may_lack |= str(name).isupper()  # a counter
    change, odd = rng.randrange(6), rng.choice(ODD[3 * may_lack :])
    is_value = name in row and not isinstance(row[name], list | dict)
    if change == 0 and is_value:
        row[name] = odd
        return f"{name} of row {place} is {odd!r}"
    if change == 1 and is_value and not may_lack:
        del row[name]
        return f"{name} of row {place} is missing"
    if change == 2 and not may_lack:
        rows.insert(rng.randrange(len(rows)), dict(row))
        return f"row {place} occurs twice"
    if change == 3 and is_value and not may_lack:
        for one in rows:
            one.pop(name, None)
        return f"{name} is missing"
    if change == 4:
        for one in rows:
            one["of a later release"] = 7
        return "a new field"
    if not may_lack:  # the order of a log's rows has a meaning
        rng.shuffle(rows)
    return "another order of rows"


def of_csv(content: bytes, rng: random.Random, story: list[str]) -> bytes:
    """Change a CSV file by its cells."""
    reader = csv.DictReader(io.StringIO(content.decode()))
    header, rows = reader.fieldnames or [], list(reader)
    if not rows or len(set(header)) < len(header):
        raise ValueError("no rows, or rows without names")
    measures = not any("End" in str(name) for name in rows[0])
    story.append(changed_rows(rows, rng, may_lack=measures))
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row if name is not None))
    writer = csv.DictWriter(text, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _lists(value: Any) -> Iterator[list[Row]]:
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _lists(inner)


def of_json(content: bytes, rng: random.Random, story: list[str]) -> bytes:
    """Change a JSON file by the members of one of its lists of objects."""
    document = json.loads(content)
    # A few rows often describe what the numbers of other rows mean.
    lists = [rows for rows in _lists(document) if len(rows) >= 8]
    if not lists:
        raise ValueError("no rows")
    story.append(changed_rows(rng.choice(lists), rng))
    return json.dumps(document).encode()


def of_database(content: bytes, rng: random.Random, story: list[str]) -> bytes:
    """Change a database by one statement on one of its tables."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        find = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        names = [name for (name,) in connection.execute(find)]
        table = rng.choice(
            [name for name in names if connection.execute(f'SELECT 1 FROM "{name}"').fetchone()]
        )
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        column, odd = rng.choice(columns), rng.choice(("NULL", "'x'", "-5", "1e300", "''", "x'00'"))
        rowid = rng.choice(connection.execute(f'SELECT rowid FROM "{table}"').fetchall())[0]
        one = f"rowid = {rowid}"
        statements = [
            f'UPDATE "{table}" SET "{column}" = {odd} WHERE {one}',
            f'ALTER TABLE "{table}" ADD COLUMN of_a_later_release',
            f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO renamed',
            f'CREATE TABLE of_a_later_release AS SELECT * FROM "{table}"',
        ]
        if "string" in table:  # other rows point to these rows
            statements.append(f'DELETE FROM "{table}" WHERE {one}')
        statement = rng.choice(statements)
        story.append(statement)
        try:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(statement)
            connection.commit()
        except sqlite3.Error:
            connection.rollback()  # the schema doesn't allow the change
        return connection.serialize()


def of_perfetto(content: bytes, rng: random.Random, story: list[str]) -> bytes:
    """Change a Perfetto trace by its packets."""
    trace = Trace.FromString(content)
    packets = list(trace.packet)
    place = rng.randrange(len(packets))
    packet = packets[place]
    change = rng.randrange(6)
    story.append(f"change {change} of packet {place}")
    if change == 0:
        del packets[place]
    elif change == 1:
        packets.insert(place, packet)
    elif change == 2:
        packet.ClearField("timestamp")
    elif change == 3 and packet.HasField("track_event"):
        packet.track_event.track_uuid = 12345
    elif change == 4 and packet.HasField("track_event"):
        packet.track_event.ClearField(
            rng.choice(("type", "name_iid", "category_iids", "track_uuid"))
        )
    else:
        packet.timestamp = rng.choice((0, 2**63, packet.timestamp + 10**15))
    return Trace(packet=packets).SerializeToString()


def cut_off(content: bytes, rng: random.Random) -> bytes:
    """Return the first part of a content, which doesn't end with a whole line."""
    return content[: rng.randrange(len(content))].rstrip(b"\n")


def changed(content: bytes, name: str, rng: random.Random, story: list[str]) -> bytes:
    """Return a file's content after one to three changes, which are added to the story."""
    change: Callable[[bytes, random.Random, list[str]], bytes] = of_csv
    if content.startswith(b"SQLite"):
        change = of_database
    elif content.lstrip()[:1] in (b"{", b"["):
        change = of_json
    elif name.endswith(".pftrace"):
        change = of_perfetto
    for _ in range(rng.randint(1, 3)):
        try:
            content = change(content, rng, story)
        except ValueError:  # nothing to change: cut the file
            return cut_off(content, rng)
        if "occurs twice" in story[-1] or "change 0" in story[-1]:
            break  # after another change, nobody could tell
    return cut_off(content, rng) if rng.random() < 0.05 else content


# Reactions


def shape(profile: Profile) -> tuple[int, int, int, int]:
    """Return the numbers of events and counter samples, and the times in ns of all events and of
    the GPU's events.
    """
    times = (int(one["duration_ns"].sum()) for one in (profile.events, profile.device_events))
    return len(profile.events), len(profile.counters), *times


def lost(sound: Profile, profile: Profile) -> bool:
    """Return True if rows or times are missing, or if times of the GPU were added."""
    before, after = shape(sound), shape(profile)
    return before[3] != after[3] or any(b > a for b, a in zip(before, after, strict=True))


def reported(profile: Profile) -> tuple[Any, ...]:
    """Return all that a profile reports about rows that are in no table."""
    names = ("warnings", "repairs", "not_kept", "ignored_files")
    return tuple(str(profile.meta.get(name, "")) for name in names)


def reaction(path: Path, sound: Profile) -> str:
    """Return `read`, `reported`, `refused`, or a description of what is wrong."""

    def too_slow(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(TIMEOUT_S)
    try:
        profile = tidyprof.read(path)
    except ProfileReadError as error:
        return "refused" if "\n" not in str(error) else "wrong: an error of several lines"
    except BaseException as error:
        return f"wrong: {traceback.format_exception(error)[-1].strip()}"
    finally:
        signal.alarm(0)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST_BYTES:
        return "wrong: more than 1 GB"
    if reported(profile) != reported(sound):
        return "reported"
    return (
        f"wrong: silently {shape(profile)}, not {shape(sound)}" if lost(sound, profile) else "read"
    )


def cases(module: str, folder: Path) -> list[Path]:
    """Write valid files of a format. Returns the folders, each with one file or more."""
    found = []
    if module in writers():
        kinds = writers()[module].kinds
        made = [one for one in events() if one.kind in kinds or one.kind == "kernel"]
        (folder / "written").mkdir()
        writers()[module].write(folder / "written", made)
        found.append(folder / "written")
    for name, sample in samples().items():
        if name.partition("-")[0] == module:
            sample.write(folder / name)
            found.append(folder / name)
    return found


def run(name: str, number: int) -> Counter[str]:
    """Try this many changes of one format, and return the number of each reaction."""
    reactions: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        sounds = cases(FORMATS[name], Path(place))
        profiles = [tidyprof.read(sound) for sound in sounds]
        for case in range(number):
            rng = random.Random(f"{name} {case}")
            sound = rng.randrange(len(sounds))
            target = Path(place) / "changed"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(sounds[sound], target)
            file = rng.choice(sorted(path for path in target.rglob("*") if path.is_file()))
            story: list[str] = []
            file.write_bytes(changed(file.read_bytes(), file.name, rng, story))
            found = reaction(target, profiles[sound])
            reactions[found.partition(":")[0]] += 1
            if found.startswith("wrong"):
                print(f"{name}, case {case}: {found}: {file.name}: {'; '.join(story)}", flush=True)
    return reactions


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| format | read | reported | refused | wrong |\n|---|--:|--:|--:|--:|")
    for name in sys.argv[2:] or FORMATS:
        found = run(name, number)
        cells = [found[key] for key in ("read", "reported", "refused", "wrong")]
        print(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
