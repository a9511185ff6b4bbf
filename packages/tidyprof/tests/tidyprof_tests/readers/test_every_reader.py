"""What all readers promise about a file on the disk: where it is, how it is packed, and that damage
never misleads.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidyprof
from tidyprof import Origin, ProfileReadError
from tidyprof.io.byte_stream import zstd
from tidyprof.readers.rocprofv3.recognition import recognizes
from tidyprof_tests import damage
from tidyprof_tests.damage import fuzzed, read_or_refused, refusal
from tidyprof_tests.patience import PATIENCE_S
from tidyprof_tests.sound_files import TEXTS, Sound, sound_files


@pytest.fixture(scope="session")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sound]:
    return sound_files(tmp_path_factory.mktemp("sound"))


ALL = (*TEXTS, "perfetto", "rocpd", "rpd", "memory snapshot")
ONE_EACH = (
    "torch",
    "rocprofv3 1_kernel_trace.csv",
    "rocprofv3 1_results.json",
    "rocprof 1 results.csv",
    "rocprof-sys json",
    "system metric",
    "perfetto",
    "rocpd",
    "rpd",
    "memory snapshot",
)
each_format = pytest.mark.parametrize("name", ONE_EACH)


@each_format
def test_a_path_that_is_not_there(name, sounds, tmp_path):
    assert "no such file" in refusal(tmp_path / "out" / sounds[name].name, sounds[name].read)


@each_format
def test_a_file_that_may_not_be_read(name, sounds, tmp_path, monkeypatch):
    path = sounds[name].write(tmp_path)

    def refused(self: Path, *arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    assert "permission" in refusal(path, sounds[name].read)


@each_format
@pytest.mark.parametrize(
    "content", [b"", b"\x1f\x8b", b"SQLite format 3\x00" + bytes(100), bytes(range(256))]
)
def test_content_of_nothing(name, content, sounds, tmp_path):
    path = tmp_path / sounds[name].name
    path.write_bytes(content)
    found = refusal(path, sounds[name].read)
    assert (found == "the file is empty") == (content == b"")


@each_format
@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_compression_is_found_by_content(name, pack, sounds, tmp_path):
    sound = sounds[name]
    (tmp_path / "plain").mkdir()
    plain = sound.read(sound.write(tmp_path / "plain"))
    for door in (sound.read, tidyprof.read):
        profile = door(sound.write(tmp_path, pack))
        pd.testing.assert_frame_equal(profile.events, plain.events)
        pd.testing.assert_frame_equal(profile.counters, plain.counters)


@each_format
def test_a_packed_file_that_is_cut_or_altered(name, sounds, tmp_path):
    packed = gzip.compress(sounds[name].content, mtime=0)
    for content in (packed[:-20], packed[:-9], packed[:-6] + b"\x00\x01" + packed[-4:]):
        path = tmp_path / sounds[name].name
        path.write_bytes(content)
        assert "unpacked" in refusal(path, sounds[name].read)


@each_format
@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_file_that_is_larger_than_allowed(name, pack, sounds, tmp_path):
    path = sounds[name].write(tmp_path, pack)
    if pack is gzip.compress or sounds[name].is_text:
        with pytest.raises(ProfileReadError, match="more than 100 bytes"):
            sounds[name].read(path, maximum_bytes=100)


@each_format
def test_the_callers_origin_is_kept(name, sounds, tmp_path):
    origin = Origin("recorded", "an MI300X, 2026")
    for door in (sounds[name].read, tidyprof.read):
        assert door(sounds[name].write(tmp_path), origin=origin).origin is origin


@each_format
def test_reading_leaves_no_trace(name, sounds, tmp_path, monkeypatch):
    temporary, folder = tmp_path / "temporary", tmp_path / "recording"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    paths = [sounds[name].write(folder), sounds[name].write(folder, gzip.compress, ".gz")]
    before = {path: path.read_bytes() for path in paths}
    folder.chmod(0o555)
    try:
        for path in paths:
            sounds[name].read(path)
            assert {file: file.read_bytes() for file in folder.iterdir()} == before
    finally:
        folder.chmod(0o755)
    assert os.listdir(temporary) == []


def test_neither_torch_nor_the_network_is_needed(sounds, tmp_path):
    for name in ONE_EACH:
        (tmp_path / name).mkdir()
        sounds[name].write(tmp_path / name)
    code = (
        "import pathlib, socket, sys, tidyprof\n"
        "socket.socket.connect = None\n"
        f"for folder in pathlib.Path({str(tmp_path)!r}).iterdir():\n"
        "    tidyprof.read(next(folder.iterdir()))\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


# Damage


@pytest.mark.parametrize("name", ALL)
@fuzzed(20)
@given(st.data())
def test_a_damaged_file_reads_or_refuses(name, sounds, tmp_path_factory, data):
    sound = sounds[name]
    before, after = data.draw(
        st.sampled_from([(bytes, bytes), (gzip.compress, bytes), (bytes, gzip.compress)])
    )
    content = damage.damaged(before(sound.content), data.draw(sound.changes()))
    path = tmp_path_factory.getbasetemp() / name.replace(" ", "-") / sound.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(after(content))
    read_or_refused(path, sound.read)


RECORDED = {
    "torch": "torch-mi250-minitoy/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "perfetto": "rocprofv3-lumi-taylor/results.pftrace",
    "rpd": "rpd-mi200-matmul/matmul_result.rpd",
    "rocprofv3 1_kernel_trace.csv": "rocprofv3-csv-docs/kernel_trace.csv",
    "rocprofv3 1_counter_collection.csv": "rocprofv3-csv-docs/counter_collection.csv",
}


@pytest.mark.parametrize("name", RECORDED)
@fuzzed(20)
@given(st.data())
def test_a_damaged_recording_reads_or_refuses(name, sounds, recordings, tmp_path_factory, data):
    content = (recordings / RECORDED[name]).read_bytes()
    if data.draw(st.booleans()) and RECORDED[name].endswith(".gz"):
        content = gzip.decompress(content)
    path = tmp_path_factory.getbasetemp() / "fuzz_recording"
    path.write_bytes(damage.damaged(content, data.draw(sounds[name].changes(len(content)))))
    read_or_refused(path, sounds[name].read)


# Folders


@each_format
@pytest.mark.parametrize("file", ["", "notes.txt", "ui_output_agent_1"])
def test_a_folder_without_a_recording_is_refused(name, file, sounds, tmp_path):
    if file:
        (tmp_path / file).write_text("epoch 1\n")
    refusal(tmp_path, sounds[name].read)


@each_format
def test_a_file_beside_a_recording_is_listed(name, sounds, tmp_path):
    sounds[name].write(tmp_path)
    (tmp_path / "notes.txt").write_text("epoch 1\n")
    for read in (sounds[name].read, tidyprof.read):
        listed = read(tmp_path).meta.get("ignored_files", {})
        assert [Path(file).name for file in listed] in ([], ["notes.txt"])


@each_format
def test_a_copy_beside_a_recording_is_refused_or_passed_over(name, sounds, tmp_path):
    sound = sounds[name]
    alone = sound.read(sound.write(tmp_path))
    (tmp_path / f"copy_{sound.name}").write_bytes(sound.content)
    for profile in read_or_refused(tmp_path, sound.read):
        assert len(profile.events) == len(alone.events)
        assert len(profile.counters) == len(alone.counters)


def test_of_recordings_of_two_tools_in_folders_none_is_chosen(sounds, tmp_path):
    for name in ("torch", "rpd"):
        (tmp_path / name).mkdir()
        sounds[name].write(tmp_path / name)
    with pytest.raises(ProfileReadError):
        tidyprof.read(tmp_path)


def test_a_folder_of_rocprof_compute_is_none_of_rocprofv3(sounds, tmp_path):
    sounds["rocprofv3 1_kernel_trace.csv"].write(tmp_path)
    assert recognizes(tmp_path, b"")
    (tmp_path / "sysinfo.csv").write_text("a,b\n1,2\n")
    assert not recognizes(tmp_path, b"")
