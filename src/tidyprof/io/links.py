"""Numbers in a database that name rows of another table, which may be gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tidyprof.errors import ProfileReadError
from tidyprof.io.sqlite import Database
from tidyprof.tables.codes import ABSENT, first_equal

NEARLY_ALL = 0.9
"""From this share of a vital link's rows on that name nothing, a file is refused: what is left of it stands for
nothing."""


@dataclass(frozen=True)
class Link:
    """A column of a table whose numbers name rows of another table, by their `id`.

    what  -- what it names, in the plural. vital -- whether a file without nearly all of these is refused.
    """

    table: str
    column: str
    target: str
    what: str
    vital: bool = False

    def in_file(self, names: Mapping[str, str]) -> Link:
        """The same link between tables with these names in the file."""
        return Link(names[self.table], self.column, names[self.target], self.what, self.vital)


@dataclass(frozen=True)
class Loss:
    """Of `total` rows so many show that something is gone. found -- "name operations that are not there"."""

    count: int
    total: int
    table: str
    found: str
    vital: bool

    def __str__(self) -> str:
        return f"{self.count:,} of {self.total:,} rows of {self.table} {self.found}"


def dangling(database: Database, links: Iterable[Link]) -> list[Loss]:
    """The links with rows that name what is not there; what the file has no table or column for is no link."""
    found = []
    there: dict[str, np.ndarray] = {}
    for link in links:
        if link.column not in database.tables.get(link.table, ()) or link.target not in database.tables:
            continue
        named = database.integers(link.table, [link.column])[link.column]
        named = named[named != ABSENT]
        if link.target not in there:
            there[link.target] = database.integers(link.target, ["id"])["id"]
        if count := int((first_equal(there[link.target], named) < 0).sum()):
            found.append(Loss(count, len(named), link.table, f"name {link.what} that are not there", link.vital))
    return found


def losses_told(database: Database, losses: Iterable[Loss], cause: str) -> list[str]:
    """A warning of all losses, none without any. Raises ProfileReadError where nearly all of a vital link are gone."""
    losses = list(losses)
    for loss in losses:
        if loss.vital and loss.count >= NEARLY_ALL * loss.total:
            raise ProfileReadError(database.path, str(loss), cause, "copy it again, or record again")
    told = "; ".join(map(str, losses))
    lost = f"Likely cause: {cause}. What is gone is missing in all counts and sums here."
    return [f"{database.path.name}: {told}. {lost}"] if told else []
