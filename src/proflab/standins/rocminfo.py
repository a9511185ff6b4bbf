"""Stand-in for rocminfo: the agents of the modelled node.

Layout: github.com/ROCm/rocm-systems, projects/rocminfo, rocminfo.cc. Only what the data of the device say is printed.
"""

from __future__ import annotations

import argparse

from gpumodel.workload import MAXIMUM_RANKS

CPU_AGENTS = 2
"""ROCm counts the CPU sockets before the GPUs."""


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0."""
    build_parser(tool).parse_args(arguments)
    from gpumodel.devices import device
    from proflab.standins.play import device_name
    from proflab.standins.sensors import announce_device

    found = device(device_name())
    announce_device(tool)
    lines = ["=====================    ", "HSA System Attributes    ", "=====================    ", ""]
    lines += ["==========               ", "HSA Agents               ", "==========               "]
    for number in range(1, CPU_AGENTS + 1):
        lines += _agent(number, {"Name": "CPU", "Device Type": "CPU"})
    for number in range(CPU_AGENTS + 1, CPU_AGENTS + MAXIMUM_RANKS + 1):
        lines += _agent(number, _gpu(found))
    print("\n".join([*lines, "*** Done ***             "]))
    return 0


def build_parser(tool: str) -> argparse.ArgumentParser:
    """No options but --help."""
    return argparse.ArgumentParser(prog=tool, description=f"Stand-in for {tool}; it takes no options.")


def _agent(number: int, values: dict[str, object]) -> list[str]:
    rows = [f"  {name + ':':<25}{value}" for name, value in values.items()]
    return ["*******                  ", f"Agent {number}                  ", "*******                  ", *rows]


def _gpu(device: object) -> dict[str, object]:
    return {
        "Name": device.gfx,
        "Marketing Name": device.marketing_name,
        "Vendor Name": "AMD",
        "Device Type": "GPU",
        "Max Clock Freq. (MHz)": device.clock_mhz,
        "Compute Unit": device.compute_units,
        "SIMDs per CU": device.simds_per_compute_unit,
        "Shader Engines": device.shader_engines,
        "Wavefront Size": f"{device.wavefront_size}(0x{device.wavefront_size:x})",
    }
