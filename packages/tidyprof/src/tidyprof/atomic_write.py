"""Files that are either complete or absent, even if the writing process is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which has the same name as the target. If the block ends without an
    error, the written file replaces the target.

    If the process is killed, a hidden folder with the incomplete file remains next to the target.
    Raises OSError if the target can't be written.
    """
    if target.exists() and not target.is_file() and not target.is_dir():
        yield target  # for example /dev/stdout, which must not be replaced
        return
    target = target.resolve()
    with TemporaryDirectory(prefix=".unfinished-", dir=target.parent) as scratch:
        partial = Path(scratch, target.name)
        yield partial
        partial.replace(target)
