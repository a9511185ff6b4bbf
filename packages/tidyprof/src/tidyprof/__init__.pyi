"""The public names of tidyprof: what is imported here is loaded at its first use."""

from tidyprof import analyses as analyses
from tidyprof import plots as plots
from tidyprof import readers as readers
from tidyprof.analyses import (
    DeviceTime,
    budget_parts,
    busy,
    call_stacks,
    collective_entries,
    collectives,
    compare,
    compare_ranks,
    gaps,
    kernels,
    memory_blocks,
    operators,
    overlap,
    phases,
    ranks,
    roofline_ceilings,
    roofline_points,
    speed_of_light,
    step_budget,
    steps,
)
from tidyprof.analyses.gpu_peaks import occupancy
from tidyprof.analyses.hang import find_missing_ranks
from tidyprof.errors import ProfileReadError
from tidyprof.export.chrome_trace import write_chrome_trace
from tidyprof.names.short_names import category, short_name
from tidyprof.parallel import map_profiles
from tidyprof.readers.assembly import read_assembly
from tidyprof.readers.flight_recorder.reader import read_flight_recorder
from tidyprof.readers.memory_snapshot.reader import read_memory_snapshot
from tidyprof.readers.perfetto.reader import read_perfetto
from tidyprof.readers.registry import read
from tidyprof.readers.rocpd.reader import read_rocpd
from tidyprof.readers.rocprof_compute.reader import read_rocprof_compute
from tidyprof.readers.rocprof_sys.reader import read_rocprof_sys
from tidyprof.readers.rocprof_v1.reader import read_rocprof_v1
from tidyprof.readers.rocprofv3.reader import read_rocprofv3
from tidyprof.readers.rpd.reader import read_rpd
from tidyprof.readers.system.reader import read_system
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof.tables.contract import (
    COUNTER_DTYPES,
    DEVICE_KINDS,
    EVENT_DTYPES,
    KINDS,
    Origin,
    Profile,
)
from tidyprof.tables.intervals import Intervals
from tidyprof.triage.verdict import Diagnosis, diagnose

__all__ = [
    "COUNTER_DTYPES",
    "DEVICE_KINDS",
    "EVENT_DTYPES",
    "KINDS",
    "DeviceTime",
    "Diagnosis",
    "Intervals",
    "Origin",
    "Profile",
    "ProfileReadError",
    "budget_parts",
    "busy",
    "call_stacks",
    "category",
    "collective_entries",
    "collectives",
    "compare",
    "compare_ranks",
    "diagnose",
    "find_missing_ranks",
    "gaps",
    "kernels",
    "map_profiles",
    "memory_blocks",
    "occupancy",
    "operators",
    "overlap",
    "phases",
    "ranks",
    "read",
    "read_assembly",
    "read_flight_recorder",
    "read_memory_snapshot",
    "read_perfetto",
    "read_rocpd",
    "read_rocprof_compute",
    "read_rocprof_sys",
    "read_rocprof_v1",
    "read_rocprofv3",
    "read_rpd",
    "read_system",
    "read_torch_trace",
    "roofline_ceilings",
    "roofline_points",
    "short_name",
    "speed_of_light",
    "step_budget",
    "steps",
    "write_chrome_trace",
]
