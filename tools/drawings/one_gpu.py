"""Drawings of one GPU: its queue, its memory, its roofs, its registers."""

from __future__ import annotations

from tools.drawings.pen import WIDTH, Drawing


def clock() -> Drawing:
    """Lesson 00: a clock that is read before the device is done."""
    drawing = Drawing(
        "Two lanes, time to the right. The host reads the clock, launches work, and reads the clock"
        " again at once, before it goes on. An arrow leads from the launch to the work of the"
        " device, which begins about then and takes much longer than the timer says.",
        190,
    )
    drawing.lane(36, "host")
    drawing.box(100, 36, 80, 30, "launch", look="host")
    drawing.box(180, 36, 150, 30, "goes on", look="plain")
    drawing.lane(90, "device")
    drawing.box(176, 90, 380, 30, "work", look="device")
    drawing.arrow((150, 66), (188, 90))
    for begin, end, y, edge in ((100, 180, 20, 36), (176, 556, 136, 120)):
        drawing.arrow((begin, y), (end, y), both=True)
        for x in (begin, end):
            drawing.line((x, y + 6 if y > edge else y - 6), (x, edge), look="dashed")
    drawing.text(190, 24, "what the timer says", "small")
    drawing.text(366, 154, "what the work takes", "small", anchor="middle")
    drawing.time(100, 174)
    return drawing


def launch() -> Drawing:
    """Lesson 02: from the range to the kernel."""
    drawing = Drawing(
        "Four lanes, time to the right. In your script's range forward PyTorch's operator"
        " aten::add_ calls hipLaunchKernel, which only puts a kernel into the queue. An arrow leads"
        " from this runtime call to the kernel: it starts later in its stream on the GPU, when the"
        " kernel before it has ended and the range is over.",
        294,
    )
    lanes = {
        "range": ("your script", (150, 440), "forward", "plain"),
        "operator": ("PyTorch", (180, 410), "aten::add_", "host"),
        "runtime call": ("HIP or CUDA", (215, 375), "hipLaunchKernel", "host"),
    }
    for row, (name, (who, (begin, end), words, look)) in enumerate(lanes.items()):
        y = 10 + 58 * row
        drawing.lane(y, name, who)
        drawing.box(begin, y, end - begin, 36, words, look=look)
    drawing.lane(214, "stream", "the GPU")
    drawing.box(150, 214, 300, 36, "the kernel before it", look="device")
    drawing.box(450, 214, 138, 36, "its kernel", look="device")
    drawing.arrow((345, 162), (470, 214))
    drawing.text(445, 188, "waits in the queue", "small")
    drawing.time(150, 276)
    return drawing


def queue() -> Drawing:
    """Lesson 02: a host that runs ahead, and a queue that runs dry."""
    drawing = Drawing(
        "Two pairs of lanes, time to the right, with an arrow from each launch to its kernel."
        " Above, a deep queue: the host has launched five kernels before the second one starts, the"
        " arrows get longer, and the stream has no gap. Below, a queue that has run dry: between"
        " its launches the host is busy with data, each kernel starts at once, and the stream is"
        " idle until the next launch.",
        352,
    )
    drawing.text(8, 22, "Deep queue: the host runs ahead, the GPU is the limit", "strong")
    _lanes(drawing, 36)
    for number in range(5):
        begin, starts = 90 + 40 * number, 128 + 92 * number
        drawing.box(begin, 36, 34, 30, str(number + 1), look="host")
        drawing.box(starts, 104, 92, 30, f"kernel {number + 1}", look="device")
        drawing.arrow((begin + 17, 66), (starts + 8, 104))
    drawing.text(300, 56, "1 to 5: launches", "small")
    drawing.text(8, 184, "Queue run dry: the GPU waits for the host", "strong")
    _lanes(drawing, 198)
    for number in range(3):
        begin = 90 + 164 * number
        drawing.box(begin, 198, 34, 30, str(number + 1), look="host")
        drawing.box(begin + 26, 266, 92, 30, f"kernel {number + 1}", look="device")
        drawing.arrow((begin + 17, 228), (begin + 34, 266))
        if number < 2:
            drawing.box(begin + 34, 198, 130, 30, "data", look="memory")
            drawing.box(begin + 118, 266, 72, 30, "idle", look="wait")
    drawing.time(90, 330)
    return drawing


def _lanes(drawing: Drawing, y: float) -> None:
    drawing.lane(y, "host")
    drawing.lane(y + 68, "stream")


def observer() -> Drawing:
    """Lesson 02: a step with and without the profiler."""
    drawing = Drawing(
        "The same step twice, time to the right. Without the profiler the host's five operators"
        " follow each other, and so do their kernels. With it the host writes down each operator:"
        " the next one comes later. The kernels are as long as before, but between them the stream"
        " is idle, and the step ends later.",
        326,
    )
    for y, title, pitch in ((36, "Without the profiler", 66), (158, "With the profiler", 98)):
        drawing.text(8, y - 14, title, "strong")
        drawing.lane(y, "host")
        drawing.lane(y + 40, "stream")
        for number in range(5):
            begin = 90 + pitch * number
            drawing.box(begin, y, 66, 30, "operator", look="host small")
            drawing.box(begin + 16, y + 40, 66, 30, "kernel", look="device small")
            if pitch > 66:
                drawing.box(begin + 66, y, 32, 30, look="wrong")
                if number < 4:
                    drawing.box(begin + 82, y + 40, 32, 30, "idle", look="wait small")
    drawing.line((436, 24), (436, 116), look="dashed")
    drawing.text(444, 36, "end of the step", "small")
    drawing.line((436, 234), (436, 258), look="dashed")
    drawing.line((580, 146), (580, 258), look="dashed")
    drawing.arrow((436, 248), (580, 248), both=True)
    drawing.text(428, 252, "what the profiler adds to the step", "small", anchor="end")
    drawing.box(90, 270, 32, 18, look="wrong")
    drawing.text(130, 284, "the host writes down what it did", "small")
    drawing.time(90, 312)
    return drawing


def roofline() -> Drawing:
    """Lesson 05: a roofline to fill in."""
    drawing = Drawing(
        "An empty roofline plot to fill in. To the right: arithmetic intensity, FLOP per byte;"
        " upwards: FLOP per second. The slanted roof, the bandwidth of HBM in bytes per second,"
        " rises to the knee, where the flat roof begins: the most FLOP per second that the"
        " arithmetic units can do. Left of the knee a kernel is memory-bound, right of it"
        " compute-bound. One kernel stands below the slanted roof.",
        384,
    )
    drawing.arrow((60, 320), (60, 20), look="axis")
    drawing.arrow((60, 320), (WIDTH - 8, 320), look="axis")
    drawing.line((75, 305), (330, 90), (WIDTH - 20, 90))
    drawing.line((330, 90), (330, 338), look="dashed")
    drawing.text(70, 30, "FLOP/s: floating-point operations per second", "small")
    drawing.text(
        WIDTH - 8,
        338,
        "arithmetic intensity: FLOP per byte",
        "small",
        anchor="end",
    )
    drawing.text(345, 62, "flat roof: arithmetic units", "strong")
    drawing.text(345, 81, "at most ________ FLOP/s", "small")
    drawing.text(72, 100, "slanted roof: bandwidth", "strong")
    drawing.text(72, 120, "HBM delivers at most", "small")
    drawing.text(72, 138, "________ bytes per second", "small")
    drawing.text(330, 362, "knee: flat roof / bandwidth = ________ FLOP per byte", anchor="middle")
    drawing.text(318, 308, "memory-bound", "strong", anchor="end")
    drawing.text(342, 308, "compute-bound", "strong")
    drawing.box(226, 236, 8, 8, look="ink")
    drawing.text(242, 246, "a kernel", "small")
    return drawing


def memory() -> Drawing:
    """Lesson 05: from a compute unit to HBM, with the sizes of an MI300X."""
    drawing = Drawing(
        "The way of a number in an MI300X. In a compute unit, one of 304, stand vector units"
        " (VALU), matrix units (MFMA), registers, LDS of 64 KiB and the cache vL1D of 32 KiB. From"
        " vL1D it leads to one of eight L2 caches of 4 MiB, through the fabric to the Infinity"
        " Cache of 256 MiB, and to HBM, 192 GB at 5.3 TB/s.",
        222,
    )
    drawing.box(8, 8, 236, 206)
    drawing.text(266, 30, "The way of a number in an MI300X", "strong")
    drawing.text(266, 48, "to the right larger and slower", "small")
    drawing.text(18, 30, "compute unit (CU)", "strong")
    drawing.text(18, 48, "one of 304", "small")
    drawing.box(18, 58, 104, 42, "VALU", "vector units", look="device")
    drawing.box(130, 58, 104, 42, "MFMA", "matrix units", look="device")
    drawing.box(18, 108, 216, 28, "registers", look="memory")
    drawing.box(18, 144, 104, 60, "LDS", "64 KiB, for", "a workgroup", look="memory")
    drawing.box(130, 144, 104, 60, "vL1D", "cache (L1)", "32 KiB", look="memory")
    for x, width, lines in (
        (266, 80, ("L2", "one of 8", "4 MiB")),
        (402, 80, ("Infinity", "Cache", "256 MiB")),
        (504, 88, ("HBM", "192 GB", "5.3 TB/s")),
    ):
        drawing.box(x, 140, width, 68, *lines, look="memory")
    for begin, end in ((234, 266), (346, 402), (482, 504)):
        drawing.arrow((begin, 174), (end, 174), both=True)
    drawing.text(374, 164, "fabric", "small", anchor="middle")
    return drawing


def tile() -> Drawing:
    """Lesson 16: a tile of a product in one compute unit."""
    drawing = Drawing(
        "Left, a product of two matrices: a tile of the result takes the rows beside it and the"
        " columns above it, a piece of some depth at a time. Right, the workgroup that computes"
        " this tile, in one compute unit: both pieces lie in LDS, 64 KiB, on an MI350 160 KiB. On"
        " each of four SIMDs a warp holds a quarter of the tile's sums in vector registers, 512 for"
        " each lane; a SIMD has 8 wave slots.",
        290,
    )
    drawing.text(199, 14, "columns", "small", anchor="middle")
    drawing.text(8, 184, "rows", "small")
    for x, y, width, height in ((46, 108, 80, 140), (134, 20, 140, 80), (134, 108, 140, 140)):
        drawing.box(x, y, width, height)
    drawing.box(46, 156, 80, 46)
    drawing.box(176, 20, 46, 80)
    drawing.box(46, 156, 44, 46, look="memory")
    drawing.box(176, 20, 46, 44, look="memory")
    drawing.text(68, 146, "depth", "small", anchor="middle")
    drawing.text(228, 58, "depth", "small")
    drawing.box(176, 156, 46, 46, "tile", look="device")
    drawing.text(204, 266, "result", "small", anchor="middle")
    drawing.box(304, 8, 288, 260)
    drawing.text(314, 30, "compute unit: one workgroup", "strong")
    drawing.box(314, 44, 268, 58, "LDS: the two pieces", "64 KiB (MI350: 160 KiB)", look="memory")
    for number in range(4):
        x = 314 + 68 * number
        drawing.box(
            x, 124, 64, 88, f"SIMD {number}", "a warp:", "1/4 of", "the sums", look="device"
        )
        drawing.arrow((x + 32, 102), (x + 32, 124))
    drawing.text(314, 236, "each SIMD: 8 wave slots, and for each", "small")
    drawing.text(314, 256, "lane 512 vector registers", "small")
    drawing.arrow((222, 30), (290, 30), (290, 62), (314, 62))
    drawing.arrow((68, 202), (68, 282), (290, 282), (290, 84), (314, 84))
    return drawing
