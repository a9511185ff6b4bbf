"""The snippet of lesson 17 on traces of two ranks, one of which comes late."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.snippets.conftest import Run

SCRIPT = "snippets/17_sharded.py"


def write(
    path: Path,
    starts: tuple[int, ...],
    lengths: tuple[int, ...],
    name: str,
    sent: int,
    received: int,
    dtype: str = "BFloat16",
) -> None:
    arguments = {
        "Collective name": name,
        "In msg nelems": sent,
        "Out msg nelems": received,
        "dtype": dtype,
    }
    arguments |= {"Group size": 4, "Process Group Name": "0"}
    kernels = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "ncclDevKernel_Generic",
            "ts": start,
            "dur": length,
            "args": arguments,
        }
        for start, length in zip(starts, lengths, strict=True)
    ]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": kernels}).encode()))


def test_the_shortest_duration_is_the_transfer_and_the_rest_is_waiting(
    bare: Run, tmp_path: Path
) -> None:
    gathered = ("_allgather_base", 1_000_000, 4_000_000)
    write(tmp_path / "rank0.json.gz", (0, 9_000), (3_000, 1_000), *gathered)
    write(tmp_path / "rank1.json.gz", (2_000, 9_000), (1_000, 1_000), *gathered)
    lines = bare("python", SCRIPT, "rank0.json.gz", "rank1.json.gz").stdout.splitlines()
    assert lines[0].split() == [
        "collective",
        "size",
        "MB",
        "calls",
        "transfer_ms",
        "bus_GB_per_s",
        "waiting_percent",
    ]
    # Three quarters of 8 MB in 1 ms; of 2 and 1 ms in the mean of the ranks a third is waiting.
    assert lines[1].split() == ["_allgather_base", "4", "8.0", "2", "1.0", "6.0", "33.33"]


def test_eight_bits_are_a_byte_and_an_unknown_type_is_asked_for(bare: Run, tmp_path: Path) -> None:
    gathered = ("_allgather_base", 1_000_000, 4_000_000)
    write(tmp_path / "rank0.json.gz", (0,), (1_000,), *gathered, dtype="Float8_e4m3fnuz")
    assert bare("python", SCRIPT, "rank0.json.gz").stdout.splitlines()[1].split()[2] == "4.0"
    write(tmp_path / "rank0.json.gz", (0,), (1_000,), *gathered, dtype="Float7")
    done = bare("python", SCRIPT, "rank0.json.gz", check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "how many bytes has an element of Float7? Add it to BYTES\n",
    )


def test_traces_without_collectives_say_what_is_missing(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text('{"traceEvents": []}')
    done = bare("python", SCRIPT, "rank0.json", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("no kernel in these traces")
