"""A public recording of eight MI300X while one of them generates text: what the monitor said, what was achieved."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from proflab.errors import CourseError
from proflab.parts.watched_runs import FROM_TABLE

if TYPE_CHECKING:
    import pandas as pd

    from proflab.recordings import Recording
    from tidyprof.tables.contract import Profile

NAME = "smi-mi300x-vllm-llama31-bs1"
WORKING_DEVICE = 0
DEVICE = "MI300X"

PARAMETERS = 8_030_261_248
"""Of Llama-3.1-8B (huggingface.co/meta-llama/Llama-3.1-8B, its safetensors files)."""

EMBEDDING = 128_256 * 4_096
"""Those of them in the input embedding, the table that turns a word piece into numbers: vocabulary times hidden size
(huggingface.co/meta-llama/Llama-3.1-8B, config.json). A token needs one row of it. tie_word_embeddings is false there,
so the last layer, which every token needs, has weights of its own."""

WEIGHTS_OF_A_TOKEN = PARAMETERS - EMBEDDING
"""What each token is multiplied with, and what has to be read for it."""

BYTES_PER_PARAMETER = 2
"""float16, as the benchmark's file name says."""

FLOPS_PER_PARAMETER = 2
"""A multiplication and an addition for each token in a forward pass (arxiv.org/abs/2001.08361, section 2.1, which
leaves the embedding out as well)."""

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
        """Model FLOPs utilisation, a fraction of the GPU's dense float16 peak.

        It counts WEIGHTS_OF_A_TOKEN for each token of prompt and answer, and leaves attention's own products out.
        """
        from cifar_train.peaks import peak_flops

        flops = FLOPS_PER_PARAMETER * WEIGHTS_OF_A_TOKEN * (self.prompt + self.generated)
        return flops / self.latency_s / peak_flops(DEVICE, "automixed")

    @property
    def bandwidth_share(self) -> float:
        """Least share of the memory's peak bandwidth, a fraction: each new token reads WEIGHTS_OF_A_TOKEN once."""
        from gpumodel.devices import device

        read = WEIGHTS_OF_A_TOKEN * BYTES_PER_PARAMETER * self.generated
        return read / self.latency_s / device(DEVICE).memory_bandwidth

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
        """One row for `power_map`: the working card in this benchmark, median power of its samples at 100 % busy.

        `samples` is their number. The log states no power limit: limit_watt is that of the course's table.
        """
        import pandas as pd

        from gpumodel.devices import device

        last = self.benchmark.counters["time_ns"].max()
        full = self.pairs[(self.pairs["busy_percent"] == 100) & (self.pairs["time_ns"] <= last)]
        row = {"run": "recorded text generation", "device": WORKING_DEVICE, "samples": len(full), "busy_percent": 100.0}
        row |= {"power_watt": full["power_watt"].median(), "limit_watt": device(DEVICE).power_watt}
        row["limit_from"] = FROM_TABLE
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
