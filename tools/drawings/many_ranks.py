"""Drawings of several ranks: who waits, who is missing, what is gathered when."""

from __future__ import annotations

from tools.drawings.pen import Drawing


def all_reduce() -> Drawing:
    """Lesson 07: two ranks and two buckets, one of the ranks late."""
    drawing = Drawing(
        "Two ranks, time to the right. Rank 0 has computed the backward pass of its last layers:"
        " the first bucket is full, and its all-reduce starts and waits, while the first layers are"
        " computed beside it. Rank 3 is late, still in its forward pass. When its bucket is full,"
        " both exchange the first bucket, then the second, and step their optimizers. From the end"
        " of rank 0's backward pass on its communication is exposed.",
        284,
    )
    parts = {
        "rank 0": ((8, 96, 184, 272), (184, 352)),
        "rank 3": ((8, 262, 352, 434), (352, 352)),
    }
    for (name, (computed, (starts, exchanges))), y in zip(parts.items(), (30, 160), strict=True):
        drawing.text(8, y - 10, name, "strong")
        names = ("forward",), ("backward,", "last layers"), ("backward,", "first layers")
        for begin, end, lines in zip(computed, computed[1:], names, strict=False):
            drawing.box(begin, y, end - begin, 44, *lines, look="device small")
        drawing.box(512, y, 80, 44, "optimizer", look="device small")
        if starts < exchanges:
            drawing.box(
                starts, y + 50, exchanges - starts, 28, "all-reduce waits", look="wait small"
            )
        drawing.box(exchanges, y + 50, 82, 28, "exchange", look="collective small")
        drawing.box(434, y + 50, 78, 28, "exchange", look="collective small")
    drawing.box(272, 30, 240, 44, "exposed: nothing is computed", look="wait small")
    drawing.box(434, 160, 78, 44, "exposed", look="wait small")
    drawing.line((352, 108), (352, 160), look="dashed")
    drawing.text(360, 138, "rank 3's bucket is full", "small")
    drawing.time(60, 262)
    return drawing


def missing_call() -> Drawing:
    """Lesson 15: three ranks, one of which leaves out a call."""
    drawing = Drawing(
        "Three ranks and three calls. Ranks 0 and 1 make calls 1, 2 and 3, rank 2 leaves out call"
        " 1. The library pairs first calls with first calls: rank 2's call 2 with call 1 of the"
        " others, then its call 3 with their call 2. Both sums are wrong. At the third pairing rank"
        " 2 has no call left: the others wait, until the time-out.",
        250,
    )
    columns = {
        "first calls": "wrong sum",
        "second calls": "wrong sum",
        "third calls": "wait, then a time-out",
    }
    for column, (heading, outcome) in enumerate(columns.items()):
        x = 82 + 172 * column
        drawing.box(x, 30, 164, 176)
        drawing.text(x + 82, 22, heading, "small", anchor="middle")
        drawing.text(x + 82, 196, outcome, "small", anchor="middle")
        for rank in range(3):
            y = 40 + 48 * rank
            number = column + 1 + (rank == 2)
            look = "wrong" if rank == 2 else "collective"
            if number > 3:
                drawing.box(x + 30, y, 104, 36, "no call", look="wait")
            else:
                drawing.box(x + 30, y, 104, 36, f"call {number}", look=look)
    for rank in range(3):
        drawing.lane(42 + 48 * rank, f"rank {rank}")
    drawing.time(82, 230)
    return drawing


def sharded_layers() -> Drawing:
    """Lesson 17: three layers of FSDP in time."""
    drawing = Drawing(
        "Three layers under FSDP on one rank, time to the right. Forward: each layer is gathered,"
        " then computed; while layer 1 computes, layer 2 is gathered ahead. Backward, from layer 3"
        " to layer 1: each is gathered again, computed, and its gradients leave by a reduce-scatter"
        " while the next one computes.",
        300,
    )
    for y, title, layers in ((32, "Forward", (1, 2, 3)), (152, "Backward", (3, 2, 1))):
        drawing.text(8, y - 10, title, "strong")
        drawing.lane(y, "gather")
        drawing.lane(y + 44, "compute")
        for place, layer in enumerate(layers):
            begin = 140 + 96 * place
            drawing.box(begin, y, 72, 30, f"layer {layer}", look="collective")
            drawing.arrow((begin + 66, y + 30), (begin + 94, y + 44))
            drawing.box(begin + 86, y + 44, 92, 30, f"layer {layer}", look="device")
            if title == "Backward":
                drawing.arrow((begin + 172, y + 74), (begin + 190, y + 88))
                drawing.box(begin + 182, y + 88, 72, 30, f"layer {layer}", look="collective")
    drawing.lane(240, "reduce-scatter")
    drawing.time(140, 288)
    return drawing
