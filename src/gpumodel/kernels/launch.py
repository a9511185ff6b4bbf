"""What one launch on the device is, before anyone has decided when it runs."""

from __future__ import annotations

from dataclasses import dataclass

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel, copy, fill or collective that an operator puts on a stream.

    name             -- as Kineto writes it, demangled, in full ("Memcpy DtoD (Device -> Device)" for a copy).
    kind             -- kernel, copy, fill or collective.
    grid             -- work-items (not workgroups) in x, y, z; (0, 0, 0) for copies and fills.
    workgroup        -- work-items of one workgroup in x, y, z.
    vector_registers, accumulation_registers, scalar_registers -- per work-item (vector, accumulation) and
                        per wavefront (scalar), typical of the kernel's class, not read from a binary.
    lds_bytes, scratch_bytes -- per workgroup and per work-item.
    flops            -- floating-point operations of the operation it implements.
    data_type        -- float16, bfloat16, float32, int64, ...; of the arithmetic.
    matrix_cores     -- whether it uses MFMA instructions.
    bytes_read, bytes_written -- traffic to memory, in bytes, each tensor counted once.
    copy_bytes       -- bytes of a copy or fill, else None.
    copy_direction   -- HostToDevice, DeviceToHost, DeviceToDevice, or "".
    collective       -- allreduce, broadcast, ... or "".
    runtime_call     -- the HIP call that launches it.
    cost_class       -- row of data/efficiencies.toml that its duration comes from.
    serial_steps     -- length of the longest chain of dependent steps in one workgroup (loop over channels,
                        pixels or the inner dimension), for classes whose time depends on it.
    parallelism      -- share of the compute units that have work on average (0 to 1].
    """

    name: str
    kind: str = "kernel"
    grid: Grid = (0, 0, 0)
    workgroup: Grid = (0, 0, 0)
    vector_registers: int = 0
    accumulation_registers: int = 0
    scalar_registers: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    flops: float = 0.0
    data_type: str = "float32"
    matrix_cores: bool = False
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    copy_bytes: int | None = None
    copy_direction: str = ""
    collective: str = ""
    runtime_call: str = "hipLaunchKernel"
    cost_class: str = "elementwise"
    serial_steps: float = 0.0
    parallelism: float = 1.0
