"""A roofline with pencil and paper: operations and bytes of a layer, roofs of an MI300X, and AMD's published layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cifar_train.peaks import peak_flops

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from tidyprof.plots import TidyFigure

HALF = 2
"""Bytes of a number in half precision."""

BANDWIDTH = 5.3e12
"""Bytes per second of an MI300X's memory: https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html."""

RATES = {"peak": peak_flops("MI300X", "automixed"), "achievable": 654e12}
"""FLOP/s of an MI300X's matrix cores in half precision: what the data sheet says, and what AMD's best matrix products
reach (https://rocm.blogs.amd.com/software-tools-optimization/measuring-max-achievable-flops-part2/)."""

SOURCE = (
    "https://github.com/amd/HPCTrainingExamples/blob/982d29d9e99c58e2781ef1434030bb93cbe5814d/"
    "MLExamples/TraceLens/roofline_report.xlsx"
)
"""Times of the layers: TraceLens on a torch.profiler trace of this workload. The repository has the MIT licence."""

_MARKERS = {"forward": "o", "backward": "s"}
_LEFT, _RIGHT, _BOTTOM, _TOP = 1, 2000, 5e11, 4e15


@dataclass(frozen=True)
class Convolution:
    """A layer that slides `filters` filters of filter_width² over images of size² with `channels` channels.

    The border is padded, so that the output has size² / stride². Numbers are in half precision.
    """

    images: int
    channels: int
    filters: int
    size: int
    filter_width: int
    stride: int = 1

    @property
    def output_size(self) -> int:
        """Width of the output."""
        return math.ceil(self.size / self.stride)

    @property
    def flops(self) -> int:
        """Operations of a forward pass: a multiplication and an addition for each weight of each output number."""
        outputs = self.images * self.filters * self.output_size**2
        return 2 * outputs * self.channels * self.filter_width**2

    @property
    def weights(self) -> int:
        """How many weights the filters have."""
        return self.filters * self.channels * self.filter_width**2

    @property
    def bytes(self) -> int:
        """The least that must be moved: input and weights read once, output written once."""
        pixels = self.channels * self.size**2 + self.filters * self.output_size**2
        return HALF * (self.images * pixels + self.weights)

    @property
    def intensity(self) -> float:
        """Operations per byte. A backward pass has twice of both, so that it is the same."""
        return self.flops / self.bytes


LAYERS = (
    ("backward", Convolution(256, 64, 256, 8, 1), 12, 564_200),
    ("backward", Convolution(256, 256, 64, 8, 1), 6, 584_500),
    ("backward", Convolution(256, 128, 512, 4, 1), 12, 306_300),
    ("backward", Convolution(256, 1024, 2048, 2, 1, 2), 3, 677_600),
    ("backward", Convolution(256, 256, 256, 2, 3), 15, 99_400),
    ("forward", Convolution(256, 1024, 256, 2, 1), 15, 167_300),
    ("forward", Convolution(256, 256, 256, 2, 3), 15, 33_000),
    ("forward", Convolution(256, 64, 64, 8, 1), 3, 9_250),
    ("forward", Convolution(256, 512, 512, 1, 3), 6, 20_900),
    ("forward", Convolution(256, 3, 64, 32, 7, 2), 3, 46_900),
)
"""Direction, layer, calls in three steps of rank 0, and mean duration in ns, from SOURCE. There are more layers."""


def roof(intensity: float, rate: float, bandwidth: float = BANDWIDTH) -> float:
    """FLOP/s that are possible at most with this many FLOP per byte: the lower of the two roofs."""
    return min(rate, intensity * bandwidth)


def roofs_above(kernel: pd.Series, ceilings: pd.DataFrame) -> tuple[float, float]:
    """The flat and the slanted roof above a kernel, in FLOP/s.

    kernel -- a row of `tidyprof.roofline_points`; ceilings -- from `tidyprof.roofline_ceilings`. The flat roof is
    that of the kernel's main type, infinite where that has none (half precision of the vector units).
    """
    roofs = ceilings.set_index("name")["value"]
    return float(roofs.get(kernel["main_type"], math.inf)), float(kernel["hbm_intensity"] * roofs["HBM"])


def knees() -> pd.DataFrame:
    """One row per entry of RATES: `rate`, `flops_per_second`, and `knee`, the FLOP per byte where the roofs meet."""
    import pandas as pd

    rows = [{"rate": name, "flops_per_second": rate, "knee": rate / BANDWIDTH} for name, rate in RATES.items()]
    table = pd.DataFrame(rows)
    table.attrs["origin"] = "published by AMD for the MI300X, half precision"
    return table


def published_layers() -> pd.DataFrame:
    """One row per layer of LAYERS.

    Columns: letter; layer (in words); direction; calls; flops and bytes of one call, by hand; intensity (FLOP per
    byte); duration_ns as published; flops_per_second; percent (0-100) of the roof with the achievable rate.
    """
    import pandas as pd

    from tidyprof.tables.contract import Origin

    rows = []
    for letter, (direction, layer, calls, duration_ns) in zip("ABCDEFGHIJ", LAYERS, strict=True):
        passes = 2 if direction == "backward" else 1
        rate = passes * layer.flops / duration_ns * 1e9
        rows.append(
            {
                "letter": letter,
                "layer": _words(layer),
                "direction": direction,
                "calls": calls,
                "flops": passes * layer.flops,
                "bytes": passes * layer.bytes,
                "intensity": layer.intensity,
                "duration_ns": duration_ns,
                "flops_per_second": rate,
                "percent": 100 * rate / roof(layer.intensity, RATES["achievable"]),
            }
        )
    table = pd.DataFrame(rows)
    detail = (
        "times: AMD Instinct MI300X, ROCm release not stated, published by AMD in amd/HPCTrainingExamples (TraceLens)"
    )
    table.attrs["origin"] = Origin("recorded", f"{detail}; operations and bytes: by hand")
    return table


def knees_figure(layers: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """The layers of `published_layers` under both roofs; between the two knees the ground is grey."""
    from tidyprof.plots import style
    from tidyprof.plots.figure import new_figure, origin_of, settings

    with settings():
        figure, (axes,) = new_figure(origin_of(layers), height=5.2, title=title)
        axes.set(xscale="log", yscale="log", xlim=(_LEFT, _RIGHT), ylim=(_BOTTOM, _TOP))
        low, high = sorted(rate / BANDWIDTH for rate in RATES.values())
        axes.axvspan(low, high, color=style.GREY, alpha=0.35, linewidth=0)
        _draw_roofs(axes)
        for direction, own in layers.groupby("direction", sort=False):
            colour = {"forward": style.BLUE, "backward": style.ORANGE}[direction]
            axes.plot(
                *(own["intensity"], own["flops_per_second"]),
                **{"marker": _MARKERS[direction], "color": colour, "linestyle": "none", "markersize": 9},
                **{"markeredgecolor": style.TEXT, "label": direction},
            )
        _label_points(axes, layers)
        axes.set_xlabel("arithmetic intensity, FLOP per byte that must be moved at least")
        axes.set_ylabel("FLOP/s")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.3)
    between = layers["intensity"].between(low, high).sum()
    figure.alternative_text = (
        f"Roofline with {len(layers)} layers, all below both roofs: the best reaches {layers['percent'].max():.1f} % "
        f"of the roof with the achievable rate, the worst {layers['percent'].min():.1f} %. The knees are at "
        f"{low:.0f} and {high:.0f} FLOP per byte, and {between} layers lie between them."
    )
    return figure


def _draw_roofs(axes: Axes) -> None:
    from tidyprof.plots import style
    from tidyprof.plots.roofline import quantity_text

    dashes = {"peak": "-", "achievable": (0, (5, 2))}
    for name, rate in RATES.items():
        knee = rate / BANDWIDTH
        axes.plot([knee, _RIGHT], [rate, rate], color=style.TEXT, linestyle=dashes[name], linewidth=1.6)
        text = f"{name}: {quantity_text(rate, 'FLOP/s')}, knee at {knee:.0f}"
        axes.annotate(text, (_RIGHT, rate), (-4, 5), textcoords="offset points", ha="right", fontsize=10)
    axes.plot([_LEFT, knee], [_LEFT * BANDWIDTH, rate], color=style.TEXT, linewidth=1.6)
    top = max(RATES.values())
    axes.plot([knee, top / BANDWIDTH], [rate, top], color=style.TEXT, linewidth=1.6)
    text = f"memory: {quantity_text(BANDWIDTH, 'B/s')}"
    axes.annotate(text, (4, 4 * BANDWIDTH), (6, -10), textcoords="offset points", va="top", fontsize=10)


def _label_points(axes: Axes, layers: pd.DataFrame) -> None:
    """The letter of each layer, left of backward and right of forward ones; the same place shares a label."""
    places: dict[tuple[str, float, float], list[str]] = {}
    for row in layers.itertuples():
        near = (row.direction, round(math.log10(row.intensity), 1), round(math.log10(row.flops_per_second), 1))
        places.setdefault(near, []).append(row.letter)
    at = layers.set_index("letter")[["intensity", "flops_per_second"]]
    for (direction, *_), letters in places.items():
        shift, side = ((-9, 0), "right") if direction == "backward" else ((9, 0), "left")
        text, place = ", ".join(letters), tuple(at.loc[letters[0]])
        axes.annotate(text, place, shift, textcoords="offset points", ha=side, va="center", fontsize=11)


def _words(layer: Convolution) -> str:
    stride = f", stride {layer.stride}" if layer.stride > 1 else ""
    width, size = f"{layer.filter_width}×{layer.filter_width}", f"{layer.size}×{layer.size}"
    return f"{width} on {size}, {layer.channels} to {layer.filters} channels{stride}"
