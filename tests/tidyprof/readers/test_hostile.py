"""Files made to mislead, to hang or to exhaust: each is refused in one harmless line, whatever the format."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import tidyprof
from tests.tidyprof.rpd_writer import small_file
from tidyprof import ProfileReadError
from tidyprof.cli.main import main
from tidyprof.errors import LONGEST_LINE


def changed_rpd(path: Path, *statements: str) -> Path:
    """A small sound rpd file after these changes."""
    small_file(path)
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


# What an error says


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE rocpd_op RENAME COLUMN gpuId TO 'gpuld\x1b]0;owned\x07\x9b31m\u202e'",
        f"UPDATE rocpd_metadata SET value = '{'long ' * 20_000}' WHERE tag = 'schema_version'",
    ],
    ids=["escape sequences", "70 KB"],
)
def test_an_error_is_short_and_harmless_whatever_the_file_holds(statement, tmp_path, capsys):
    path = changed_rpd(tmp_path / "a\x1b[31m\u202eb.rpd", statement)
    with pytest.raises(ProfileReadError) as caught:
        tidyprof.read(path)
    assert main(["summary", str(path)]) == 2
    for line in (str(caught.value), capsys.readouterr().err.removesuffix("\n")):
        assert line.isprintable()
        assert len(line) <= LONGEST_LINE
        assert "Likely cause: " in line
        assert "Next step: " in line
