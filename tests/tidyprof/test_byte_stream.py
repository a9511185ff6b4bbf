"""Compressed files: whole ones are read, cut ones are refused wherever the cut is."""

from __future__ import annotations

import gzip
import io
import random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tidyprof import ProfileReadError
from tidyprof.io.byte_stream import ByteStream
from tidyprof.io.zstd_frames import ends_with_a_frame

SKIPPABLE = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"


def compressed(content: bytes, **options) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(content)


def streamed(content: bytes) -> bytes:
    """Without the content's size in the header, as from a pipe."""
    target = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(target, closefd=False) as writer:
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


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("checksum", [False, True])
def test_whole_zstd_files_are_read(tmp_path, name, checksum):
    content = CONTENTS[name]
    data = compressed(content, write_checksum=checksum)
    for stored, expected in ((data, content), (streamed(content), content), (data + SKIPPABLE + data, 2 * content)):
        path = tmp_path / "a.zst"
        path.write_bytes(stored)
        assert content_of(path) == expected


@given(st.data())
def test_a_cut_zstd_file_is_never_taken_for_a_whole_one(data):
    content = CONTENTS[data.draw(st.sampled_from(list(CONTENTS)))]
    frames = compressed(content, write_checksum=data.draw(st.booleans())) + streamed(content)
    kept = data.draw(st.integers(5, len(frames) - 1))
    whole = len(compressed(content)), len(compressed(content, write_checksum=True))
    assert ends_with_a_frame(io.BytesIO(frames[:kept])) == (
        kept == len(frames) - len(streamed(content)) and kept in whole
    )


@pytest.mark.parametrize("kept", [0.3, 0.5, 0.999])
@pytest.mark.parametrize("pack", [compressed, streamed, gzip.compress])
def test_a_cut_file_is_refused(tmp_path, pack, kept):
    data = pack(CONTENTS["noise"])
    path = tmp_path / "cut"
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ProfileReadError, match="incomplete or damaged"):
        content_of(path)
