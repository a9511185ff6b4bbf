"""Compressed files: whole ones are read, cut ones are refused wherever the cut is."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidyprof import ProfileReadError
from tidyprof.io.byte_stream import ByteStream, zstd

SKIPPABLE = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"


def with_checksum(content: bytes) -> bytes:
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


def streamed(content: bytes) -> bytes:
    """Without the content's size in the header, as from a pipe."""
    target = io.BytesIO()
    with zstd.ZstdFile(target, "w") as writer:
        writer.write(content)
    return target.getvalue()


def content_of(path) -> bytes:
    return b"".join(ByteStream(path).chunks())


CONTENTS = {
    "nothing": b"",
    "short": b"a",
    "run": b"z" * 300_000,
    "text": b"the quick brown fox " * 20_000,
    "noise": random.Random(0).randbytes(400_000),
}
PACKERS = [zstd.compress, with_checksum, streamed]


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("pack", PACKERS)
def test_whole_zstd_files_are_read(tmp_path, name, pack):
    content = CONTENTS[name]
    data = pack(content)
    for stored, expected in ((data, content), (data + SKIPPABLE + data, 2 * content)):
        path = tmp_path / "a.zst"
        path.write_bytes(stored)
        assert content_of(path) == expected


@given(st.data())
def test_a_cut_zstd_file_is_never_taken_for_a_whole_one(tmp_path_factory, data):
    content = CONTENTS[data.draw(st.sampled_from(list(CONTENTS)))]
    first, second = (data.draw(st.sampled_from(PACKERS))(content) for _ in range(2))
    kept = data.draw(st.integers(5, len(first + second) - 1))
    path = tmp_path_factory.mktemp("cut") / "a.zst"
    path.write_bytes((first + second)[:kept])
    if kept == len(first):
        assert content_of(path) == content
    else:
        with pytest.raises(ProfileReadError, match="cut off or damaged"):
            content_of(path)


@pytest.mark.parametrize("kept", [0.3, 0.5, 0.999])
@pytest.mark.parametrize("pack", [zstd.compress, streamed, gzip.compress])
def test_a_cut_file_is_refused(tmp_path, pack, kept):
    data = pack(CONTENTS["noise"])
    path = tmp_path / "cut"
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ProfileReadError, match="cut off or damaged"):
        content_of(path)


@pytest.mark.parametrize("pack", [zstd.compress, gzip.compress])
def test_a_file_that_unpacks_to_too_much_is_refused_in_little_memory(tmp_path, pack):
    path = tmp_path / "bomb"
    path.write_bytes(pack(b"\x00" * 200 * 2**20))
    tracemalloc.start()
    with pytest.raises(ProfileReadError, match="104857600 bytes"):
        sum(map(len, ByteStream(path, 100 * 2**20).chunks()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20
