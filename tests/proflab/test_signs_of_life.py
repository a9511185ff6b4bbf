"""A cell that takes long says so, and says nothing once it has ended."""

from __future__ import annotations

from threading import Event

from proflab.parts.signs_of_life import signs_of_life


def test_signs_come_while_the_block_runs_and_end_with_it() -> None:
    said, twice = [], Event()

    def tell(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            twice.set()

    with signs_of_life("Compiling", every_s=0.001, tell=tell):
        assert twice.wait(60)
    count = len(said)
    assert said[0] == "Compiling, 0 s so far"
    assert len(said) == count
