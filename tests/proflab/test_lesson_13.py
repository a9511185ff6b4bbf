"""What lesson 13 leaves in Python: the checks of its answers, by hand, and the runs that it
plays.
"""

from __future__ import annotations

import pandas as pd

from proflab.exercises import find

KERNELS = pd.DataFrame(
    [
        ("igemm conv", 400_000, 100_000),
        ("Winograd CONV", 0, 900_000),
        ("batched_transpose", 300_000, 200_000),
        ("add", 60_000, 61_000),
        ("tiny", 1_000, 4_000),
        ("norm", 50_000, 60_000),
        ("pool", 160_000, 60_000),
    ],
    columns=["kernel", "base_ns", "new_ns"],
).assign(difference_ns=lambda table: table["new_ns"] - table["base_ns"])


def message(number: int, data: object, answer: object) -> str:
    return find(f"13.{number}").on(data).evaluate(answer).message


def test_many_kernels_or_one():
    tables = {"one": KERNELS}
    assert message(3, tables, 1).startswith("A function of a table")
    assert "not the number of kernels" in message(3, tables, lambda kernels: 7)
    large = KERNELS[KERNELS["base_ns"] >= 50_000]
    assert "longer by chance" in message(
        3, tables, lambda kernels: (large["new_ns"] > large["base_ns"]).sum()
    )
    assert "all of the large kernels" in message(3, tables, lambda kernels: len(large))
