"""What of lesson 12 runs on a GPU alone: the order of streams around the recording of a graph."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from types import SimpleNamespace

from proflab.lessons import lessons


def test_a_graph_is_recorded_after_what_its_stream_has_to_wait_for() -> None:
    done: list[str] = []

    def stream(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, wait_stream=lambda other: done.append(f"{name} waits for {other.name}"))

    @contextmanager
    def entered(what: str, where: SimpleNamespace):
        done.append(f"{what} {where.name}")
        yield

    cuda = SimpleNamespace(
        Stream=lambda: stream("side"),
        current_stream=lambda: stream("main"),
        stream=lambda where: entered("in", where),
        CUDAGraph=lambda: "graph",
        graph=lambda graph, stream: entered("record in", stream),
    )
    source = ast.parse(lessons()["12"].source.read_text(encoding="utf-8"))
    source.body = [node for node in source.body if getattr(node, "name", "") == "recorded"]
    names: dict = {"torch": SimpleNamespace(cuda=cuda)}
    exec(compile(source, "lesson 12", "exec"), names)
    assert names["recorded"](lambda: done.append("work") or "answer") == ("graph", "answer")
    warm_up = ["side waits for main", "in side", "work", "work", "work", "main waits for side"]
    assert done == [*warm_up, "record in side", "work"]
