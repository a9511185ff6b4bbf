"""Run the queries from 06_rpd_report.sql on an SQLite trace. The SQL file must be in
the same folder.

    # rocmProfileData, schema 2 or 3
    python 06_rpd_report.py trace.rpd
    # rocprofv3 (rocpd), --runtime-trace or more
    python 06_rpd_report.py 1234_results.db
    # leave out operations that start in the first 500 ms of GPU work
    python 06_rpd_report.py trace.rpd --skip-ms 500

The script opens the trace read-only. To add a query, add a block `-- name: ...` to the
SQL file.
"""

import argparse
import re
import sqlite3
from pathlib import Path

import pandas as pd

BLOCKS = re.compile(r"^-- name: (.+)\n((?:.|\n)+?;)$", re.MULTILINE)


def questions() -> dict[str, str]:
    text = Path(__file__).with_suffix(".sql").read_text()
    return dict(BLOCKS.findall(text))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--skip-ms", type=float, default=0.0)
    options = parser.parse_args()
    if not options.file.is_file():
        raise SystemExit(f"{options.file} doesn't exist.")
    database = sqlite3.connect(f"{options.file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    except sqlite3.DatabaseError as error:
        raise SystemExit(f"{options.file}: {error}") from None
    asked = questions()
    views = {"op": asked.pop("work in rpd"), "kernels": asked.pop("work in rocpd")}
    kind = next((view for view in views if view in names), None)
    if kind is None:
        raise SystemExit(
            f"Unsupported file: {options.file}. It has no view `op` (rpd) or `kernels` "
            "(rocpd)."
        )

    # This view exists only in this connection
    database.execute(views[kind])
    begin, end, rows = database.execute(
        "SELECT min(start), max(end), count(*) FROM work"
    ).fetchone()
    if not rows:
        raise SystemExit(f"{options.file} contains no GPU work.")
    skip = begin + int(options.skip_ms * 1e6)
    left_out = f"without the first {options.skip_ms:g} ms"
    print(
        f"{options.file}: {rows:,} operations in {(end - begin) / 1e6:.3f} ms, "
        f"{left_out}"
    )
    for title, sql in asked.items():
        table = pd.read_sql(sql, database, params={"begin": skip})
        for column in {"name", "next"} & {*table.columns}:
            table[column] = table[column].str.slice(0, 60)
        print(f"\n{title}")
        print(
            table.to_string(index=False, float_format="{:.3f}".format)
            if len(table)
            else "none"
        )


if __name__ == "__main__":
    main()
