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


KEY_LINES = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\nbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZWQy"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("MYSQL_PWD=hunter;2,more", "hunter;2,more"),
        ("DATABASE_URL=postgresql://bob:hunter2@db.example/x", "bob:hunter2"),
        ("HTTPS_PROXY=http://bob:h@nter2@proxy:3128", "bob:h@nter2"),
        ("OPENAI_APIKEY=abcdef123456", "abcdef123456"),
        ("export GH_PAT='abc def123456'", "abc def123456"),
        ("SSH_PASSPHRASE=correct", "correct"),
        ("AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=https;AccountKey=Zm9v==", "Zm9v"),
        ("posts to https://hooks.slack.com/services/T0AB/B0CD/efGH12", "T0AB/B0CD/efGH12"),
        ("SLACK_WEBHOOK: https://example.com/abc", "example.com/abc"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("curl -u with Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ('{"authorization": "Bearer abc.def"}', "abc.def"),
        (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_LINES}\n-----END OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXkt"),
        (json.dumps(f"-----BEGIN PRIVATE KEY-----\n{KEY_LINES}\n-----END PRIVATE KEY-----"), "bm9uZQAAAAAAAAAB"),
        ("xoxb-123456789012-abcdefGHIJKL", "123456789012"),
        ('{"env": {"A": "kept nowhere"}}', "kept nowhere"),
        ('{"Environment": ["A=kept nowhere"]}', "kept nowhere"),
        ('{"env_vars": {"A": "kept nowhere"}}', "kept nowhere"),
        ('{"db_password": "a b\\\\\\"c d"}', "c d"),
        (json.dumps({"log": json.dumps({"secret": "in a string"})}), "in a string"),
        ("mysql --password hunter2", "hunter2"),
        ("wandb login --api-key=abcdef", "abcdef"),
        ("aws_secret_access_key = wJalrXUtn", "wJalrXUtn"),
        ("password: hunter2", "hunter2"),
        ("from node18 and node03.cluster.example", "node18"),
        ("from node18 and node03.cluster.example", "node03.cluster"),
        ("nid000123", "nid000123"),
        ("io-a1", "io-a1"),
        ("connect to 10.12.0.7:29500", "10.12.0.7"),
        ("inet6 fe80::1ff:fe23:4567:890a", "fe23"),
        ("host 2001:db8::8a2e:370:7334", "8a2e"),
        ("ether 0c:42:a1:5b:9e:01", "5b"),
        ("guid 0c42:a103:005b:9e01", "9e01"),
        ("ask bob.b@site.example", "bob.b@site"),
        ("GPU[0]\t\t: Serial Number: PCB0123-4567", "PCB0123"),
        ("        ASIC_SERIAL: 0x7C7D5A1B", "7C7D5A1B"),
        ('{"Unique ID": "0x7c7d5a1b"}', "7c7d5a1b"),
        ('{"serial_number": 692251001234}', "692251001234"),
    ],
)
def test_secrets_and_identities_are_hidden_wherever_a_log_holds_them(text, secret):
    nodes = {"SLURM_JOB_NODELIST": "nid[000001-000999],io-a1", "SLURM_SUBMIT_HOST": "login1"}
    hidden = Scrubber(HOSTS, ENVIRONMENT | nodes).text(text)
    assert secret in text
    assert secret not in hidden
    assert len(hidden) == len(text)
    assert hidden.count("\n") == text.count("\n")
    if text.startswith(("{", '"')):
        json.loads(hidden)


@pytest.mark.parametrize(
    "name",
    ["MYSQL_PWD", "OPENAI_APIKEY", "GH_PAT", "GPG_PASSPHRASE", "X_CONNECTION_STRING", "SLACK_WEBHOOK_URL", "DB_PASSWD"],
)
def test_values_of_secret_variables_are_hidden_everywhere(name):
    hidden = Scrubber(HOSTS, ENVIRONMENT | {name: "battery-staple"}).text("it said battery-staple aloud")
    assert "battery" not in hidden


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "ck::tokenizer::run", "token_count": 131072, "tokens": 1.5e-3}',
        "void moe_token_sort::kernel<secret_ns::f>(token)",
        '{"key": "begin_ns", "pass": 12345678, "PATH": "x", "serial": true, "secret": null}',
        "PWD=here OLDPWD=there PATHS=many",
        "Basic information of Basic Linear Algebra",
        "memcpy@GLIBC_2.14, 12:34:56, MIOpen 3.5.0.70200, ROCm 7.2.0.1, 127.0.0.1, a::b::c",
        "nvidia-cublas-cu12==12.8.4.1 tokens==3.0.0",
        "TOKENIZERS_PARALLELISM=false c2 0000:c2:00.0",
        "-----END PRIVATE KEY-----",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert Scrubber(["c1", *HOSTS], ENVIRONMENT).text(text) == text


@pytest.mark.parametrize("begin", [b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh9", b"\x1f\x8bdamaged"])
def test_what_cannot_be_looked_into_is_refused(tmp_path, scrubber, begin):
    for content in (begin + b"alice", gzip.compress(begin + b"alice")):
        (tmp_path / "packed").write_bytes(content)
        with pytest.raises(UserError, match="leave it out"):
            scrubber.content(tmp_path / "packed")


def test_what_is_packed_twice_is_cleared(tmp_path, scrubber):
    (tmp_path / "log.gz").write_bytes(gzip.compress(gzip.compress(b"by alice")))
    assert b"alice" not in gzip.decompress(gzip.decompress(scrubber.content(tmp_path / "log.gz")))
