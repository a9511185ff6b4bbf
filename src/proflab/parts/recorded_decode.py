"""A public recording of eight MI300X while one of them generates text: what the monitor said, what was achieved."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from proflab.errors import CourseError

if TYPE_CHECKING:
    import pandas as pd

    from proflab.recordings import Recording
    from tidyprof.profile import Profile

NAME = "smi-mi300x-vllm-llama31-bs1"
WORKING_DEVICE = 0
DEVICE = "MI300X"

PARAMETERS = 8_030_261_248
"""Of Llama-3.1-8B (huggingface.co/meta-llama/Llama-3.1-8B, its safetensors files)."""

BYTES_PER_PARAMETER = 2
"""float16, as the benchmark's file name says."""

FLOPS_PER_PARAMETER = 2
"""A multiplication and an addition for each token in a forward pass (arxiv.org/abs/2001.08361, section 2.1)."""

LOADED_BYTES = 1e9
"""More than this on the GPU means that a model is there: idle cards of the recording hold a third of it."""


@dataclass(frozen=True)
class Decode:
    """The first benchmark in the log, and the log.

    log       -- all samples of all cards; benchmark -- those until the first model was taken off the card again.
    prompt, generated -- tokens of one request; latency_s -- mean time of one.
    """

    log: Profile
    benchmark: Profile
    prompt: int
    generated: int
    latency_s: float

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, a fraction of the GPU's dense float16 peak."""
        from cifar_train.peaks import peak_flops

        flops = FLOPS_PER_PARAMETER * PARAMETERS * (self.prompt + self.generated)
        return flops / self.latency_s / peak_flops(DEVICE, "automixed")

    @property
    def bandwidth_share(self) -> float:
        """Least share of the memory's peak bandwidth, a fraction: each new token needs all weights once."""
        from gpumodel.devices import device

        return PARAMETERS * BYTES_PER_PARAMETER * self.generated / self.latency_s / device(DEVICE).memory_bandwidth

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Of the working card: time_ns, busy_percent, and power_watt of the nearest sample, which is another moment."""
        import pandas as pd

        own = self.log.counters[self.log.counters["device"] == WORKING_DEVICE]
        series = [
            own.loc[own["name"] == name, ["time_ns", "value"]].rename(columns={"value": column})
            for name, column in (("gpu_busy", "busy_percent"), ("power", "power_watt"))
        ]
        found = pd.merge_asof(*series, on="time_ns", direction="nearest")
        found.attrs["origin"] = self.log.origin
        return found

    @cached_property
    def working(self) -> pd.DataFrame:
        """One row for `power_map`: the working card in this benchmark, median of the samples at 100 % busy."""
        import pandas as pd

        from gpumodel.devices import device

        last = self.benchmark.counters["time_ns"].max()
        full = self.pairs[(self.pairs["busy_percent"] == 100) & (self.pairs["time_ns"] <= last)]
        row = {"run": "recorded text generation", "device": WORKING_DEVICE, "busy_percent": 100.0}
        row |= {"power_watt": full["power_watt"].median(), "limit_watt": device(DEVICE).power_watt}
        table = pd.DataFrame([row])
        table.attrs["origin"] = self.log.origin
        return table


def recorded_decode(found: Recording) -> Decode:
    """Read the recording. Raises CourseError if it is not the one that this module knows."""
    import tidyprof

    name, result = next(((name, path) for name, path in found.files.items() if name.endswith(".json")), (None, None))
    lengths = re.search(r"_in(\d+)_out(\d+)_float16_", name or "")
    if lengths is None:
        raise CourseError(f"{found.name}: no benchmark result in it; the recording {NAME} is asked")
    folder = next(path.parent for path in found.files.values() if path.suffix == ".csv")
    log = tidyprof.read_system(folder, origin=found.origin)
    latency_s = json.loads(result.read_text(encoding="utf-8"))["avg_latency"]
    return Decode(log, _first_benchmark(log), int(lengths[1]), int(lengths[2]), latency_s)


def _first_benchmark(log: Profile) -> Profile:
    """The log until the working card's memory, once full, is empty again."""
    import tidyprof

    table = log.counters
    held = table[(table["name"] == "memory_used") & (table["device"] == WORKING_DEVICE)].sort_values("time_ns")
    begin = held.loc[held["value"] > LOADED_BYTES, "time_ns"].min()
    end = held.loc[(held["value"] <= LOADED_BYTES) & (held["time_ns"] > begin), "time_ns"].min()
    return tidyprof.Profile(log.events, table[table["time_ns"] <= end].reset_index(drop=True), log.meta)
