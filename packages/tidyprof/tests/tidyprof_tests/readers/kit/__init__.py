"""The test kit of the readers: samples of each format, their true tables, and ways to damage them.

Each module in this folder registers one format: `SAMPLES`, of which the first one is the format's
usual file, and `WRITER`, if tests need files with other events. `../samples/NAME.events.tsv` and
`NAME.counters.tsv` contain the rows that a sample's content has to give. They were written from the
content, not by the reader. An empty cell is a missing value, and a missing column is empty.
"""

from __future__ import annotations

import pkgutil
import sqlite3
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
from hypothesis import strategies as st

import tidyprof
from tidyprof import Profile
from tidyprof_tests.damage import Mutation, mutations, text_mutations

TRUTH = Path(__file__).parent.parent / "samples"


@dataclass(frozen=True)
class Damage:
    """A change of a sample and the expected reaction.

    finding  -- the file is refused, and the message contains this pattern.
    left_out -- otherwise, this many rows fewer than in the sample are in the tables, and as many
                more are counted in `meta["repairs"]` or `meta["not_kept"]`. 0: the same tables.
    warning  -- one of the profile's warnings contains this pattern. Then the tables may differ.
    """

    change: Mutation
    finding: str = ""
    left_out: int = 0
    warning: str = ""


@dataclass(frozen=True)
class Sample:
    """A small sound file.

    name      -- the name that the file has to have.
    read      -- the format's own reader.
    others    -- name and content of further files; then the folder is read.
    recording -- path of a real file of the format, which random damage hits, too.
    """

    name: str
    content: bytes
    read: Callable[..., Profile]
    is_text: bool = True
    damages: Mapping[str, Damage] = field(default_factory=dict)
    others: Mapping[str, bytes] = field(default_factory=dict)
    recording: str = ""

    def write(self, folder: Path, pack: Callable[[bytes], bytes] = bytes, suffix: str = "") -> Path:
        """Write the sample. Returns the path to read."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}{suffix}"
        path.write_bytes(pack(self.content))
        for name, content in self.others.items():
            (folder / name).write_bytes(content)
        return folder if self.others else path

    def changes(self, size: int | None = None) -> st.SearchStrategy[list[Mutation]]:
        """Random damage of a content with this many bytes."""
        strategy = text_mutations if self.is_text else mutations
        return st.lists(strategy(size or len(self.content)), min_size=1, max_size=4)


@dataclass(frozen=True)
class Event:
    """An event for a `Writer`.

    kind     -- what the format calls it; "kernel" is a kernel in each format.
    start    -- in ns after the writer's `start_ns`.
    number   -- its place among the events.
    launched -- a kernel has a launching call 5 µs before it, from this thread.
    """

    kind: str
    name: str
    start: int
    duration: int
    number: int
    stream: int | None = 7
    thread: int = 1
    launched: bool = False


@dataclass(frozen=True)
class Writer:
    """Writes files with other events than the samples.

    write    -- writes the events into a folder, and returns the path to read.
    start_ns -- the time that the events' starts count from.
    kinds    -- the kinds of events that it writes; those in `sampled` are rows of `counters`.
    counted  -- the number of rows of `counters` that belong to these kernels.
    streams  -- it writes streams, threads and launches as the event says.
    """

    write: Callable[[Path, Sequence[Event]], Path]
    start_ns: int
    kinds: tuple[str, ...]
    sampled: tuple[str, ...] = ()
    unit_ns: int = 1
    counted: Callable[[Sequence[Event]], int] | None = None
    streams: bool = False


@cache
def _formats() -> dict[str, ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return {name: import_module(f"{__name__}.{name}") for name in names}


@cache
def samples() -> dict[str, Sample]:
    """Name -> sample. The name is that of the module and of the sample in it, if it has several."""
    return {
        name if key == "" else f"{name}-{key}": sample
        for name, module in _formats().items()
        for key, sample in module.SAMPLES.items()
    }


def usual_samples() -> list[str]:
    """The name of each format's first sample."""
    return [
        next(key for key in samples() if key == name or key.startswith(f"{name}-"))
        for name in _formats()
    ]


def writers() -> dict[str, Writer]:
    """Name of a format -> its writer."""
    found = {name: getattr(module, "WRITER", None) for name, module in _formats().items()}
    return {name: writer for name, writer in found.items() if writer}


def has_truth(name: str) -> bool:
    """Whether somebody has written the true tables of a sample."""
    return any(TRUTH.glob(f"{name}.*.tsv"))


def truth(name: str, table: str) -> pd.DataFrame:
    """The rows that a table of a sample has to have, as text. Without a file: none."""
    path = TRUTH / f"{name}.{table}.tsv"
    if not path.exists():
        return pd.DataFrame()
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """A table as `truth` states it: without short names, and without columns that are empty."""
    known = table.drop(columns="short_name", errors="ignore").dropna(axis="columns", how="all")
    text = known.astype(object).map(lambda value: "" if pd.isna(value) else str(value))
    return text.reset_index(drop=True)


# Ways to make a content, and to damage it


def content_of(write: Callable[[Path], Path]) -> bytes:
    """The content of the file that a writer writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder) / "sample").read_bytes()


def sql(*statements: str) -> Mutation:
    """A database after these statements."""

    def change(content: bytes) -> bytes:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(content)
            for statement in statements:
                connection.execute(statement)
            connection.commit()
            return connection.serialize()

    return change


def damages_in_file(name: str, rename: Callable[[str], str] = str) -> dict[str, Damage]:
    """The damages in `../samples/NAME_damages.toml`: `sql` for a database, or pairs of texts to
    `replace`, and the reaction.

    rename -- gives each statement the names of the tables in the file.
    """

    def damage(sql_: Sequence[str] = (), replace: Sequence[Any] = (), **reaction: Any) -> Damage:
        pairs = [(old.encode(), new.encode()) for old, new in replace]
        return Damage(replaced(*pairs) if pairs else sql(*map(rename, sql_)), **reaction)

    found = tomllib.loads((TRUTH / f"{name}_damages.toml").read_text())
    return {what: damage(own.pop("sql", ()), **own) for what, own in found.items()}


def cases_in_file(name: str) -> dict[str, dict[str, Any]]:
    """The cases in `../samples/NAME_cases.toml`."""
    return tomllib.loads((TRUTH / f"{name}_cases.toml").read_text())


def assert_case(case: dict[str, Any], create: Callable[..., Any], path: Path) -> None:
    """Write a file and compare the profile.

    create -- the class of a writer; `options` of the case are for it, and `steps` are calls of its
              methods.

    Of `events`, optionally only of these `kinds`, and `counters` the stated columns are compared;
    "" is a missing value, and `start` and `launch` are times after the writer's start. `meta`
    states some entries, `meta_lacks` names others. `warning` is part of the only warning; without
    it, there is none.
    """
    writer = create(path, **case.get("options", {}))
    for method, *arguments in case["steps"]:
        options = arguments.pop() if isinstance(arguments[-1], dict) else {}
        getattr(writer, method)(*arguments, **options)
    profile = tidyprof.read(writer.close())
    events = profile.events
    if "kinds" in case:
        events = events[events["kind"].isin(case["kinds"])]
    times = {name: events[f"{name}_ns"] - create.START_NS for name in ("start", "launch")}
    for table, expected in ((events.assign(**times), "events"), (profile.counters, "counters")):
        for column, values in case.get(expected, {}).items():
            found = table[column].astype(object)
            assert found.where(found.notna(), "").tolist() == values, column
    for key, value in case.get("meta", {}).items():
        assert profile.meta[key] == value, key
    assert not {*case.get("meta_lacks", ())} & {*profile.meta}
    warnings = [text for text in profile.meta["warnings"] if "don't name their device" not in text]
    if "warning" in case:
        assert any(case["warning"] in text for text in warnings), warnings
    else:
        assert not warnings


def replaced(*pairs: tuple[bytes, bytes], count: int = -1) -> Mutation:
    """A text in which the first of each pair is replaced by the second."""

    def change(content: bytes) -> bytes:
        for old, new in pairs:
            assert old in content
            content = content.replace(old, new, count)
        return content

    return change


def cut_to(share: float) -> Mutation:
    """The first part of a content."""
    return lambda content: content[: int(len(content) * share)]
