"""Stand-in for rocprofv3-avail: what can be collected on the modelled device."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from proflab.standins.release import sdk_version


def version(tool: str) -> str:
    """The output of --version."""
    return sdk_version()


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int | None:
    """Print the list that is asked for, or check counters. Returns 0."""
    if options.command is None:
        return None
    from gpumodel.devices import device
    from proflab.standins.play import announce, device_name
    from proflab.standins.rocprofv3_records import check_counters

    found = device(device_name())
    announce(tool, f"modelled {found.name}")
    if options.command == "pmc-check":
        check_counters(options.pmc, found)
        print(f"{' '.join(options.pmc)}: collected in one pass")
    else:
        list_counters(options.device or 0, options.agent)
    return 0


def list_counters(number: int = 0, agent_only: bool = False) -> None:
    """Print the modelled device, and the counters that the model has."""
    from gpumodel.devices import device
    from proflab.standins.play import device_name
    from proflab.standins.rocprofv3_records import modelled_counters

    found = device(device_name())
    print(f"GPU : {number}\nName : {found.gfx}\nProduct : {found.marketing_name}")
    if not agent_only:
        print(
            f"Modelled counters : {', '.join(modelled_counters(found))}\nPC sampling : not modelled"
        )
