"""Stand-in for rocprofv3-avail: what can be collected on the modelled device.

Sub-commands and options: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk,
source/docs/how-to/using-rocprofv3-avail.rst.
"""

from __future__ import annotations

import argparse

from proflab.standins import release


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0, or 2 for a wrong option."""
    parser = build_parser(tool)
    options = parser.parse_args(arguments)
    if options.version:
        print(f"    {'version':>16}: {release.ROCPROFILER_SDK}\n    {'rocm_version':>16}: {release.ROCM}")
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    from gpumodel.devices import device
    from proflab.standins.play import announce, device_name

    found = device(device_name())
    announce(tool, f"modelled {found.name}")
    from proflab.standins.rocprofv3_counters import check_counters, modelled_counters

    if options.command == "pmc-check":
        check_counters(options.pmc, found)
        print(f"{' '.join(options.pmc)}: collected in one pass")
        return 0
    print(f"GPU : {options.device or 0}\nName : {found.gfx}\nProduct : {found.marketing_name}")
    if not options.agent:
        print(f"Modelled counters : {', '.join(modelled_counters(found))}\nPC sampling : not modelled")
    return 0


def build_parser(tool: str) -> argparse.ArgumentParser:
    """All sub-commands."""
    parser = argparse.ArgumentParser(prog=tool, description=f"Stand-in for {tool} of ROCm {release.ROCM}.")
    parser.add_argument("-v", "--version", action="store_true", help="print versions and exit")
    parser.add_argument("-d", "--device", type=int, help="logical number of the agent")
    commands = parser.add_subparsers(dest="command")
    for name, text in (("list", "names"), ("info", "names with descriptions")):
        command = commands.add_parser(name, help=text)
        command.add_argument("-d", "--device", type=int, default=argparse.SUPPRESS, help="logical number of the agent")
        what = command.add_mutually_exclusive_group()
        what.add_argument("--pmc", nargs="*", help="counters")
        what.add_argument("--agent", action="store_true", help="agents")
        what.add_argument("--pc-sampling", action="store_true", help="PC sampling configurations")
    check = commands.add_parser("pmc-check", help="whether counters fit into one pass")
    check.add_argument("-d", "--device", type=int, default=argparse.SUPPRESS)
    check.add_argument("pmc", nargs="+")
    return parser
