"""What all readers promise about a file: the tables of each sample of the kit, where the file is, how
it is packed, and that damage never misleads.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidyprof
from tidyprof import Origin, Profile, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream, zstd
from tidyprof.readers.registry import FORMATS
from tidyprof.readers.rocprofv3.recognition import recognizes
from tidyprof.tables.contract import COUNTER_COLUMNS, EVENT_COLUMNS, FURTHER_COLUMNS
from tidyprof_tests import damage
from tidyprof_tests.damage import fuzzed, read_or_refused, refusal
from tidyprof_tests.patience import PATIENCE_S
from tidyprof_tests.readers.kit import as_text, has_truth, samples, truth, usual_samples

ALL = samples()
each_format = pytest.mark.parametrize("name", usual_samples())
each_sample = pytest.mark.parametrize("name", ALL)


# What a sound file gives


def tables(profile: Profile) -> dict[str, pd.DataFrame]:
    return {"events": profile.events, "counters": profile.counters}


@each_sample
def test_every_field_of_a_sample(name, tmp_path):
    profile = tidyprof.read(ALL[name].write(tmp_path))
    dtypes = {"events": EVENT_COLUMNS | FURTHER_COLUMNS, "counters": COUNTER_COLUMNS}
    for kind, table in tables(profile).items():
        found = table.dtypes.astype(str).to_dict()
        assert found == {column: dtypes[kind].get(column, found[column]) for column in found}
        if has_truth(name):
            pd.testing.assert_frame_equal(
                as_text(table),
                truth(name, kind),
                check_like=True,
                check_dtype=False,
                check_column_type=False,
            )


@each_sample
def test_one_reader_claims_a_sample(name, tmp_path):
    path = ALL[name].write(tmp_path)
    head = b"" if path.is_dir() else ByteStream(path).head(HEAD_BYTES)
    assert sum(reader.recognizes(path, head) for reader in FORMATS) == 1


DAMAGES = [(name, damage) for name, sample in ALL.items() for damage in sample.damages]


def left_out(profile: Profile) -> int:
    """Events that the profile says it left out."""
    return sum(profile.meta.get("not_kept", {}).values()) + sum(profile.meta["repairs"].values())


@pytest.mark.parametrize(("name", "what"), DAMAGES, ids=[": ".join(one) for one in DAMAGES])
def test_a_known_damage(name, what, tmp_path):
    sample, expected = ALL[name], ALL[name].damages[what]
    sound = tidyprof.read(sample.write(tmp_path / "sound"))
    path = replace(sample, content=expected.change(sample.content)).write(tmp_path / "damaged")
    if expected.finding:
        assert re.search(expected.finding, refusal(path, sample.read))
        return
    profile = sample.read(path)
    assert any(re.search(expected.warning, text) for text in ["", *profile.meta["warnings"]])
    if expected.warning and not expected.left_out:
        return
    assert left_out(profile) - left_out(sound) == expected.left_out
    lost = sum(len(sound_) for sound_ in tables(sound).values())
    lost -= sum(len(table) for table in tables(profile).values())
    assert lost == expected.left_out
    if not expected.left_out:
        for kind, table in tables(profile).items():
            pd.testing.assert_frame_equal(table, tables(sound)[kind])


# Where it is, and how it is packed


@each_format
def test_a_path_that_is_not_there(name, tmp_path):
    assert "no such file" in refusal(tmp_path / "out" / ALL[name].name, ALL[name].read)


@each_format
@pytest.mark.parametrize(
    "content", [b"", b"\x1f\x8b", b"SQLite format 3\x00" + bytes(100), bytes(range(256))]
)
def test_content_of_nothing(name, content, tmp_path):
    path = tmp_path / ALL[name].name
    path.write_bytes(content)
    found = refusal(path, ALL[name].read)
    assert (found == "the file is empty") == (content == b"")


@each_format
@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_compression_is_found_by_content(name, pack, tmp_path):
    sound = ALL[name]
    (tmp_path / "plain").mkdir()
    plain = sound.read(sound.write(tmp_path / "plain"))
    for door in (sound.read, tidyprof.read):
        profile = door(sound.write(tmp_path, pack))
        pd.testing.assert_frame_equal(profile.events, plain.events)
        pd.testing.assert_frame_equal(profile.counters, plain.counters)


@each_format
@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_file_that_is_larger_than_allowed(name, pack, tmp_path):
    path = ALL[name].write(tmp_path, pack)
    if pack is gzip.compress or ALL[name].is_text:
        with pytest.raises(ProfileReadError, match="more than 100 bytes"):
            ALL[name].read(path, maximum_bytes=100)


@each_format
def test_the_callers_origin_is_kept(name, tmp_path):
    origin = Origin("recorded", "an MI300X, 2026")
    for door in (ALL[name].read, tidyprof.read):
        assert door(ALL[name].write(tmp_path), origin=origin).origin is origin


@each_format
def test_reading_leaves_no_trace(name, tmp_path, monkeypatch):
    temporary, folder = tmp_path / "temporary", tmp_path / "recording"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    paths = [ALL[name].write(folder), ALL[name].write(folder, gzip.compress, ".gz")]
    before = {path: path.read_bytes() for path in paths}
    folder.chmod(0o555)
    try:
        for path in paths:
            ALL[name].read(path)
            assert {file: file.read_bytes() for file in folder.iterdir()} == before
    finally:
        folder.chmod(0o755)
    assert os.listdir(temporary) == []


def test_neither_torch_nor_the_network_is_needed(tmp_path):
    for name in usual_samples():
        ALL[name].write(tmp_path / name)
    code = (
        "import pathlib, socket, sys, tidyprof\n"
        "socket.socket.connect = None\n"
        f"for folder in pathlib.Path({str(tmp_path)!r}).iterdir():\n"
        "    tidyprof.read(next(folder.iterdir()))\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


# Damage


@each_sample
@fuzzed(20)
@given(st.data())
def test_a_damaged_file_reads_or_refuses(name, tmp_path_factory, data):
    sound = ALL[name]
    before, after = data.draw(
        st.sampled_from([(bytes, bytes), (gzip.compress, bytes), (bytes, gzip.compress)])
    )
    content = damage.damaged(before(sound.content), data.draw(sound.changes()))
    folder = tmp_path_factory.getbasetemp() / name
    path = replace(sound, content=after(content)).write(folder)
    read_or_refused(path, sound.read)


@pytest.mark.parametrize("name", [name for name, sample in ALL.items() if sample.recording])
@fuzzed(20)
@given(st.data())
def test_a_damaged_recording_reads_or_refuses(name, recordings, tmp_path_factory, data):
    sample = ALL[name]
    content = (recordings / sample.recording).read_bytes()
    if data.draw(st.booleans()) and sample.recording.endswith(".gz"):
        content = gzip.decompress(content)
    path = tmp_path_factory.getbasetemp() / "fuzz_recording"
    path.write_bytes(damage.damaged(content, data.draw(sample.changes(len(content)))))
    read_or_refused(path, sample.read)


# Folders


@each_format
@pytest.mark.parametrize("file", ["", "notes.txt", "ui_output_agent_1"])
def test_a_folder_without_a_recording_is_refused(name, file, tmp_path):
    if file:
        (tmp_path / file).write_text("epoch 1\n")
    refusal(tmp_path, ALL[name].read)


@each_format
def test_a_copy_beside_a_recording_is_refused_or_passed_over(name, tmp_path):
    sound = ALL[name]
    alone = sound.read(sound.write(tmp_path))
    (tmp_path / f"copy_{sound.name}").write_bytes(sound.content)
    for profile in read_or_refused(tmp_path, sound.read):
        assert len(profile.events) == len(alone.events)
        assert len(profile.counters) == len(alone.counters)


def test_of_recordings_of_two_tools_in_folders_none_is_chosen(tmp_path):
    for name in ("torch", "rpd"):
        ALL[name].write(tmp_path / name)
    with pytest.raises(ProfileReadError):
        tidyprof.read(tmp_path)


def test_a_folder_of_rocprof_compute_is_none_of_rocprofv3(tmp_path):
    ALL["rocprofv3_csv-kernel_trace"].write(tmp_path)
    assert recognizes(tmp_path, b"")
    (tmp_path / "sysinfo.csv").write_text("a,b\n1,2\n")
    assert not recognizes(tmp_path, b"")
