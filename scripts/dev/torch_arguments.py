"""What uv has to be asked for to install one build of torch: `torch_arguments.py BUILD [GFX]`, an
argument a line.

BUILD is a release such as rocm10.1, or what uv's --torch-backend knows, such as cpu or cu130. GFX
is the architecture of the GPUs, such as gfx942; without it the Linux kernel is asked, and where it
has no GPU all architectures are taken. MACHINE is the root of the file system that this looks at.
Set-up calls it before anything is installed, so it needs nothing but Python 3.11.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

TABLE = Path(__file__).parents[2] / "src/proflab/releases.toml"


def main(build: str, architecture: str = "") -> int:
    """Print the arguments; 0, or 2 where no index is known."""
    if not build.startswith("rocm"):
        print("--torch-backend", build, sep="\n")
        return 0
    rows = {f"rocm{row['rocm']}": row for row in tomllib.loads(TABLE.read_text())["torch_build"]}
    # Patch levels share an index with their release: rocm10.1.1 is found as rocm10.1.
    row = rows.get(".".join(build.split(".")[:2]))
    if row is None:
        say(
            f"no index of packages is known to have a torch for {build}; those that are:"
            f" {' '.join(rows)}. Take the nearest one that the site's driver supports, or the"
            " site's own PyTorch"
        )
        return 2
    if row.get("uv"):
        print("--torch-backend", build, sep="\n")
        return 0
    extra = ""
    if row.get("per_gpu"):
        architecture = architecture or architecture_here()
        extra = f"[device-{architecture or 'all'}]"
        if not architecture:
            say(
                "no AMD GPU is here, so torch comes with kernels for all of them (10 GB to"
                f" download); for one alone (2 GB): make setup TORCH={build} GFX=gfx942"
            )
    say(f"torch {row['torch']} comes from {row['index']} (looked up in {row['looked_up']})")
    # Other packages come from the usual index. uv would take each from the first index that has any
    # version of it.
    print("--index", row["index"], "--index-strategy", "unsafe-best-match", sep="\n")
    print(f"torch{extra}=={row['torch']}", f"torchvision{extra}=={row['torchvision']}", sep="\n")
    return 0


def say(text: str) -> None:
    """One line of set-up, beside the arguments."""
    print(f"setup: {text}", file=sys.stderr)


def architecture_here() -> str:
    """The architecture of this machine's first AMD GPU, from the Linux kernel: 90402 is gfx942,
    90010 is gfx90a.
    """
    nodes = Path(os.environ.get("MACHINE") or "/") / "sys/class/kfd/kfd/topology/nodes"
    for properties in sorted(nodes.glob("*/properties")):
        found = re.search(r"^gfx_target_version (\d+)$", properties.read_text(), re.MULTILINE)
        if found and int(found[1]):
            version = int(found[1])
            return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
