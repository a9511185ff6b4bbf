"""Planted names, paths, tokens and environments are in no file of a recording; what readers measure is unchanged."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import tidyprof
from cifar_train.errors import UserError
from proflab.scrubbing import Scrubber
from tests.tidyprof import chrome_writer, perfetto_writer
from tests.tidyprof.rocpd_writer import RocpdWriter

HOSTS = ("node17.cluster.example", "login2")
ENVIRONMENT = {
    "USER": "alice",
    "HOME": "/gpfs/people/alice",
    "SITE_API_KEY": "correct-horse-battery",
    "SLURM_PROCID": "1",
}
TOKEN = "hf_abcdefghijklmnopqrstuvwx"
PATH = "/gpfs/people/alice/secret-project/train_model.py"
PLANTED = {
    "host": HOSTS[0], "name": "by alice on login2", "path": PATH, "token": f"login --token {TOKEN}",
    "key": "correct-horse-battery", "header": "Authorization: Bearer abc.def-123456",
    "environment": {"OTHER": "kept nowhere", "SLURM_PROCID": "1", "AWS": "ABCDEFGH",
                    "environment": {}},
}  # fmt: skip
SECRETS = ("node17", "cluster.example", "login2", "alice", "gpfs/people", "secret-project", TOKEN, "correct-horse",
           "abc.def-123456", "kept nowhere", "ABCDEFGH")  # fmt: skip
KERNEL = "void gemm<float>(at::native::alice_in_chains, node170)"


@pytest.fixture
def scrubber() -> Scrubber:
    return Scrubber(HOSTS, ENVIRONMENT)


def torch_trace(folder: Path) -> Path:
    events = [*chrome_writer.small_step(), chrome_writer.kernel(KERNEL, 1_080_000, 500, 21)]
    return chrome_writer.write_trace(folder / "trace.json.gz", events, header=chrome_writer.HEADER | PLANTED)


def database(folder: Path) -> Path:
    writer = RocpdWriter(folder / "results.db", environment=PLANTED["environment"] | {"SLURM_NTASKS": "2"})
    writer.kernel(KERNEL, 1_000, 500)
    for text in json.dumps(PLANTED), *filter(lambda value: isinstance(value, str), PLANTED.values()):
        writer.string(text)
    writer.string("deleted alice" * 500)
    writer.connection.execute(f"DELETE FROM \"{writer.name('string')}\" WHERE string LIKE 'deleted%'")
    return writer.close()


def perfetto(folder: Path) -> Path:
    """Its texts stand behind their lengths, which may look like letters and digits."""
    words = [PATH.ljust(48 + number, "x") for number in range(75)]
    command = perfetto_writer.track(9, perfetto_writer.process(100, HOSTS[0], "--token", TOKEN, *words))
    return perfetto_writer.write_trace(folder / "results.pftrace", perfetto_writer.small_trace(), command)


def unpacked(content: bytes) -> bytes:
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


@pytest.mark.parametrize("write", [torch_trace, database, perfetto])
def test_nothing_planted_is_left_and_what_is_measured_stays(tmp_path, scrubber, write):
    original = write(tmp_path)
    assert b"alice" in unpacked(original.read_bytes())
    (tmp_path / "clean").mkdir()
    cleaned = tmp_path / "clean" / original.name
    cleaned.write_bytes(scrubber.content(original))
    text = unpacked(cleaned.read_bytes()).decode("latin-1").replace(KERNEL, "")
    assert [secret for secret in SECRETS if secret in text] == []
    before, after = tidyprof.read(original), tidyprof.read(cleaned)
    columns = ["rank", "kind", "name", "start_ns", "duration_ns"]
    assert after.device_events[columns].equals(before.device_events[columns])
    assert len(after.events) == len(before.events) > 0


def test_a_database_keeps_rows_and_the_rank(tmp_path, scrubber):
    content = scrubber.content(database(tmp_path))
    (tmp_path / "clean.db").write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "clean.db")) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        (process,) = (name for name in names if name.startswith("rocpd_info_process"))
        ((environment,),) = connection.execute(f'SELECT environment FROM "{process}"')
    assert json.loads(environment)["SLURM_PROCID"] == "1"
    assert set(tidyprof.read(tmp_path / "clean.db").events["rank"]) == {1}


def test_same_words_stay_the_same_and_others_different(scrubber):
    text = scrubber.text("node17 login2 node17.cluster.example /home/x/run.py /home/y/run.py alice")
    one, other, full, first, second, user = text.split()
    assert len({one, other, user}) == 3
    assert (len(one), len(full)) == (len("node17"), len(HOSTS[0]))
    assert scrubber.text("on node17") == f"on {one}"
    assert first != second
    assert first.endswith("/run.py")


@pytest.mark.parametrize(
    "text",
    [
        "/opt/rocm-7.2/lib/libamdhip64.so",
        "void f<float>(int) [clone .kd]",
        "a/b/c",
        "https://github.com/ROCm/x",
        "1/2/3",
    ],
)
def test_names_of_kernels_and_of_the_system_stay(scrubber, text):
    assert scrubber.text(text) == text


def test_a_damaged_database_is_refused(tmp_path, scrubber):
    path = database(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(len(content) - 4096))
    with pytest.raises(UserError, match="cannot be cleared"):
        scrubber.content(path)
