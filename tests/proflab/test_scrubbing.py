"""Planted names, paths, tokens and environments are in no file of a recording; what readers measure
is unchanged.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

import tidyprof
from proflab.scrubbing import Scrubber
from tidyprof.errors import UserError
from tidyprof_tests import chrome_writer, perfetto_writer
from tidyprof_tests.rocpd_writer import RocpdWriter

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
SECRETS = (
    "node17",
    "cluster.example",
    "login2",
    "alice",
    "gpfs/people",
    "secret-project",
    TOKEN,
    "correct-horse",
    "abc.def-123456",
    "kept nowhere",
    "ABCDEFGH",
)
KERNEL = "void gemm<float>(at::native::alice_in_chains, node170)"


@pytest.fixture
def scrubber() -> Scrubber:
    return Scrubber(HOSTS, ENVIRONMENT)


def torch_trace(folder: Path) -> Path:
    events = [*chrome_writer.small_step(), chrome_writer.kernel(KERNEL, 1_080_000, 500, 21)]
    return chrome_writer.write_trace(
        folder / "trace.json.gz", events, header=chrome_writer.HEADER | PLANTED
    )


def database(folder: Path) -> Path:
    writer = RocpdWriter(
        folder / "results.db", environment=PLANTED["environment"] | {"SLURM_NTASKS": "2"}
    )
    writer.kernel(KERNEL, 1_000, 500)
    for text in (
        json.dumps(PLANTED),
        *filter(lambda value: isinstance(value, str), PLANTED.values()),
    ):
        writer.string(text)
    writer.string("deleted alice" * 500)
    writer.connection.execute(
        f"DELETE FROM \"{writer.name('string')}\" WHERE string LIKE 'deleted%'"
    )
    return writer.close()


def perfetto(folder: Path) -> Path:
    """Its texts stand behind their lengths, which may look like letters and digits."""
    words = [PATH.ljust(48 + number, "x") for number in range(75)]
    command = perfetto_writer.track(
        9, perfetto_writer.process(100, HOSTS[0], "--token", TOKEN, *words)
    )
    return perfetto_writer.write_trace(
        folder / "results.pftrace", perfetto_writer.small_trace(), command
    )


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
        names = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
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
        (
            "AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=https;AccountKey=Zm9v==",
            "Zm9v",
        ),
        ("posts to https://hooks.slack.com/services/T0AB/B0CD/efGH12", "T0AB/B0CD/efGH12"),
        ("SLACK_WEBHOOK: https://example.com/abc", "example.com/abc"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("curl -u with Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ('{"authorization": "Bearer abc.def"}', "abc.def"),
        (
            f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_LINES}\n-----END OPENSSH PRIVATE KEY-----",
            "b3BlbnNzaC1rZXkt",
        ),
        (
            json.dumps(f"-----BEGIN PRIVATE KEY-----\n{KEY_LINES}\n-----END PRIVATE KEY-----"),
            "bm9uZQAAAAAAAAAB",
        ),
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
        ("machine example.org login bob password hunter2", "hunter2"),
        ("machine example.org\n  login bob\n  password hunter2\n", "bob"),
        ('["mysql", "--password", "hunter2"]', "hunter2"),
        ("['mysql', '--password', 'hunter2']", "hunter2"),
        ("--password 'hunter 2'", "hunter 2"),
        ('{"name": "DB_PASSWORD", "value": "hunter2"}', "hunter2"),
        ('{"value": "hunter2", "name": "DB_PASSWORD"}', "hunter2"),
        ("- name: DB_PASSWORD\n  value: hunter2", "hunter2"),
        ("| DB_PASSWORD | hunter2 |", "hunter2"),
        ("DB_PASSWORD,hunter2", "hunter2"),
        (' "DB_PASSWORD","hunter2"', "hunter2"),
        ("DB_PASSWORD\thunter2", "hunter2"),
        ("<password>hunter2</password>", "hunter2"),
        ('password => "hunter2"', "hunter2"),
        ('{"auths": {"ghcr.io": {"auth": "Ym9iOmh1bnRlcjI="}}}', "Ym9iOmh1bnRlcjI"),
        ("_auth=Ym9iOmh1bnRlcjI=", "Ym9iOmh1bnRlcjI"),
        ("AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "72PouQMnMX"),
        ("ya29.a0AfH6SMBxyz_abc-def", "SMBxyz"),
        ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "HqLyjWDarj"),
        ("SG.ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf-09kqeF8t", "DHoTf-09kq"),
        ("my_sk-proj-abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
        ("https://x.blob.core.windows.net/c?sv=2020&sig=aB%2Bc9%3D&se=1", "aB%2Bc9%3D"),
        ("https://x.s3.amazonaws.com/y?X-Amz-Signature=0123456789abcdef", "0123456789abcdef"),
        ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=Zm9vYmFy==;Suffix=y", "Zm9vYmFy"),
        ("https://discord.com/api/webhooks/123456/aB-c9", "aB-c9"),
        (
            "https://site.webhook.office.com/webhookb2/aB@c/IncomingWebhook/d9/e",
            "IncomingWebhook/d9",
        ),
        ("curl -s -u bob:hunter2 https://x", "hunter2"),
        ("curl -ubob:hunter2 https://x", "hunter2"),
        ('["curl", "--user", "bob:hunter2"]', "hunter2"),
        ("mysql -u root -phunter2 db", "hunter2"),
        ("sshpass -p 'hunter2' ssh login2", "hunter2"),
        ("docker login -u bob -p hunter2 ghcr.io", "hunter2"),
        ("redis-cli -h x -a hunter2 ping", "hunter2"),
        ("Cookie: theme=dark; session=hunter2; x=1", "session=hunter2"),
        ('Authorization: Digest username="bob", response="hunter2"', "hunter2"),
        ("ether 0c-42-a1-5b-9e-01", "5b-9e"),
        ("ether 0c42.a15b.9e01", "a15b"),
        ("mac: 0c42a15b9e01", "a15b"),
        ("80:00:02:08:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:5b:9e:01", "5b:9e"),
        ("Port GUID:\t\t0x0c42a103005b9e01", "a103005b"),
        ("9.114.219.21", "219"),
        ("tcp://9.12.0.7/", "9.12"),
        ('{"master_addr": "9.12.0.7"}', "9.12"),
        ("nameserver 8.8.4.4", "8.8.4.4"),
        ("log_10.31.4.77.txt", "31.4.77"),
        ("ip-10-31-4-77.ec2.internal", "10-31"),
        ("2001:db8::1", "db8::1"),
        ("Uuid: GPU-a9d9b1f8d9d4a1b2", "a9d9b1f8"),
        ("GPU 0: NVIDIA H100 (UUID: GPU-5a1c7e2b-1234-5678-9abc-def012345678)", "9abc"),
        ("GPU UUID : a1ff74a1-0000-1000-80e4-3c3b6e3f0b4a", "3c3b6e3f"),
        (r"C:\Users\bob\new\train.py", "bob"),
        (r"C:\Users\Bob Miller\project\train.py", "Miller"),
        (r"\\server\share\bob\x.txt", "share"),
        (json.dumps(r"C:\Users\bob\new\train.py"), "bob"),
        (r"\/gpfs\/people\/bob\/x.py", "people"),
        ("NODE17 and Node17.Cluster.Example", "NODE17"),
        ("host%20login2", "login2"),
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


TOLD = {
    "host": "node17",
    "neighbour": "node18",
    "user": "mueller",
    "IPv4": "10.31.4.77",
    "MAC": "0c:42:a1:5b:9e:01",
    "IPv6": "fe80::1ff:fe23:4567:890a",
    "token": "sk-abcdefghijklmnopqrst",
    "path": "/gpfs/people/mueller/x.py",
    "password": "PASSWORD=hunter2",
}
SECRET_PART = {"path": "people", "password": "hunter2"}


@pytest.mark.parametrize("kind", TOLD)
@pytest.mark.parametrize(
    "beside",
    [
        "x\n{}\ny",
        "x\t{}\t",
        "\r\n{}\r\n",
        "\x1b[32m{}\x1b[0m",
        "\x1b[1;38;5;208m{}\x1b[K",
        "\x1b(B{}\x1b[m",
        "\0{}\0",
        "\f{}",
    ],
)
def test_an_escape_beside_it_hides_nothing_from_the_search(kind, beside):
    scrubber = Scrubber(HOSTS, ENVIRONMENT | {"USER": "mueller"})
    text, secret = beside.format(TOLD[kind]), SECRET_PART.get(kind, TOLD[kind])
    for written in (
        text,
        json.dumps({"log": text}),
        repr(text),
        json.dumps({"log": json.dumps(text)}),
    ):
        hidden = scrubber.text(written)
        assert secret in written
        assert secret not in hidden
        assert len(hidden) == len(written)
        if written.startswith("{"):
            json.loads(hidden)


def test_a_colour_within_hides_no_password(scrubber):
    assert "hunter2" not in scrubber.text("\x1b[33mPASSWORD\x1b[0m=\x1b[31mhunter2\x1b[0m")


@pytest.mark.parametrize(
    "text",
    [
        "krb5cc_mueller",
        "mueller_train.log",
        "home_mueller.log",
        "MUELLER",
        "Mueller2",
        r"CORP\mueller",
        "%2Fmueller%2F",
    ],
)
def test_a_user_is_hidden_inside_of_other_words(text):
    assert "mueller" not in Scrubber(HOSTS, ENVIRONMENT | {"USER": "mueller"}).text(text).lower()


def test_a_user_of_few_letters_or_in_a_name_of_c_plus_plus_is_not_sought_inside_of_words():
    names = "al_run void at::native::in_mueller_kernel<float>(int) _ZN2at7muellerEv"
    assert Scrubber(HOSTS, ENVIRONMENT | {"USER": "al", "LOGNAME": "mueller"}).text(names) == names


def test_the_sign_behind_a_name_stays(scrubber):
    assert scrubber.text("aws_secret_access_key = wJalrXUtn") == "aws_secret_access_key = xxxxxxxxx"


@pytest.mark.parametrize(
    "name",
    [
        "MYSQL_PWD",
        "OPENAI_APIKEY",
        "GH_PAT",
        "GPG_PASSPHRASE",
        "X_CONNECTION_STRING",
        "SLACK_WEBHOOK_URL",
        "DB_PASSWD",
    ],
)
def test_values_of_secret_variables_are_hidden_everywhere(name):
    hidden = Scrubber(HOSTS, ENVIRONMENT | {name: "battery-staple"}).text(
        "it said battery-staple aloud"
    )
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
        (
            "ROCm 7.2.0.1, v7.2.0.1, rocm-7.2.0.1, libhip.so.7.2.0.1, cuDNN 9.1.0.70, hip"
            " 6.4.43483.0, 1.2.3.4"
        ),
        "2024.1201.1234 2024-01-01-10-20-30 20.10.30 GPU-accelerated",
        (
            '{"replica": 1732671234567890, "switch": 1732671234567890, "mac": 173267123456,'
            ' "num_tokens": 1732671}'
        ),
        'from the login node: mkdir -p results; srun -p gpu <td class="token">word</td>',
        "python -u train.py, docker run -u 1000:1000 x, author: bob, tokens | 12, tokens, 12",
        '{"machine_id":"","next":"x","password":""}',
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SE_K1 x:\\n std::deque::beef f::2:3",
        "-----END PRIVATE KEY-----",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert Scrubber(["c1", *HOSTS], ENVIRONMENT).text(text) == text


LOG = b"by alice on node17\n" * 40
SEALED = {
    "zip": b"PK\x03\x04",
    "zstd": b"\x28\xb5\x2f\xfd",
    "xz": lzma.compress(LOG),
    "bzip2": bz2.compress(LOG),
    "damaged gzip": b"\x1f\x8bdamaged",
    "gzip behind others": b"#!/bin/sh\n" + gzip.compress(LOG),
    "zlib": zlib.compress(LOG),
    "zlib behind others": b"header" + zlib.compress(LOG, 1),
    "LZMA alone": lzma.compress(LOG, lzma.FORMAT_ALONE),
    "bzip2 behind others": b"header" + bz2.compress(LOG),
    "UTF-16": LOG.decode().encode("utf-16"),
    "UTF-16, no mark": LOG.decode().encode("utf-16-be"),
    "UTF-32": LOG.decode().encode("utf-32-le"),
    "Feather": b"ARROW1\0\0alice",
    "Parquet": b"PAR1alice",
    "nobody knows": random.Random(1).randbytes(100_000),
}


@pytest.mark.parametrize("kind", SEALED)
def test_what_cannot_be_looked_into_is_refused_by_name(tmp_path, scrubber, kind):
    for content in (SEALED[kind], gzip.compress(SEALED[kind])):
        (tmp_path / "packed").write_bytes(content)
        with pytest.raises(UserError, match=r"packed .*leave it out"):
            scrubber.content(tmp_path / "packed")


def test_what_only_begins_like_something_packed_is_no_such_thing(tmp_path, scrubber):
    content = b"x^2 + y \x78\x01\x78\x9c\x1f\x8b\x08\x00 BZh ]\0\0" + bytes(5000)
    (tmp_path / "open").write_bytes(content)
    assert scrubber.content(tmp_path / "open") == content


def test_blobs_of_a_database_are_cleared_and_packed_ones_refused(tmp_path, scrubber):
    path = tmp_path / "results.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE data (content BLOB)")
        connection.execute("INSERT INTO data VALUES (?)", (b"\x01\x02 by alice on node17",))
    assert b"alice" not in (cleared := scrubber.content(path))
    assert b"node17" not in cleared
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO data VALUES (?)", (zlib.compress(LOG),))
    with pytest.raises(
        UserError, match=r"results\.db holds values of content that .* \(zlib\); leave it out"
    ):
        scrubber.content(path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE of_alice (x)",
        "CREATE TABLE data (alice TEXT)",
        "CREATE VIEW view AS SELECT '/gpfs/people/alice/x' AS place",
        "CREATE INDEX alice ON runs (x)",
        "CREATE TRIGGER note AFTER UPDATE ON runs BEGIN INSERT INTO runs VALUES ('by alice'); END",
    ],
)
def test_a_database_whose_definitions_name_somebody_is_refused(tmp_path, scrubber, statement):
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
        connection.execute("CREATE TABLE runs (x)")
        connection.execute(statement)
    with pytest.raises(UserError, match=r"results\.db .* in the definition of .*leave it out"):
        scrubber.content(tmp_path / "results.db")


def test_what_is_packed_twice_is_cleared(tmp_path, scrubber):
    (tmp_path / "log.gz").write_bytes(gzip.compress(gzip.compress(b"by alice")))
    assert b"alice" not in gzip.decompress(gzip.decompress(scrubber.content(tmp_path / "log.gz")))
