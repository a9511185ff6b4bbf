"""The snippet of lesson 12 on a model small enough to count by hand, and on its own module."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.snippets.conftest import Run

SNIPPET = "snippets/12_decode_bound.py"
# A layer has 8 * 4 * 2 * (2 + 1) = 192 weights for attention and 3 * 8 * 16 = 384 more; with the
# last 80: 1232.
CONFIG = {
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
CONFIG |= {"intermediate_size": 16, "vocab_size": 10}


def bound(bare: Run, folder: Path, *options: str, config: dict = CONFIG, check: bool = True):
    (folder / "config.json").write_text(json.dumps(config))
    return bare("python", SNIPPET, "config.json", *options, check=check)


def test_bounds_counted_by_hand(bare: Run, tmp_path: Path) -> None:
    # A token of cache has 2 layers * 2 rows * 4 numbers * 2 bytes = 32: 2464 + 10 * 32 bytes a
    # step, at 2784 bytes/s.
    slow_memory = ("--bandwidth", "2.784e-9", "--peak", "1", "--context", "10")
    found = bound(bare, tmp_path, *slow_memory).stdout
    assert "a step takes at least 1000.000 ms (memory)" in found
    assert "at most 1.0 tokens/s in total, 1.0 per request" in found
    # A weight of b bytes takes 2 FLOP per token: at 246.6 FLOP per byte 246.6 tokens of two
    # bytes, half of one.
    for size, tokens in ((2, 247), (1, 123), (4, 493)):
        said = bound(
            bare, tmp_path, "--bandwidth", "5.3", "--peak", "1307", "--bytes", str(size)
        ).stdout
        assert (
            f"knee at 247 FLOP per byte: memory also limits prefill below {tokens} tokens" in said
        )
    found = bound(
        bare, tmp_path, "--bandwidth", "1", "--peak", "1.232e-9", "--batch", "4", "--bytes", "1"
    ).stdout
    assert "a step takes at least 8000.000 ms (arithmetic)" in found  # 2 * 1232 * 4 operations


def test_prefill_and_decode_are_timed(bare: Run) -> None:
    lines = bare("python", SNIPPET).stdout.splitlines()
    for line, name in zip(lines, ("prefill", "decode "), strict=False):
        assert re.fullmatch(
            name + r"  median [\d.]+ ms, quartiles [\d.]+ to [\d.]+, [\d,]+ tokens/s", line
        )
    assert lines[2].startswith(
        "decode reads 0.034 GB of weights"
    )  # 8 * (1024 + 1) * 1024 numbers of four bytes
