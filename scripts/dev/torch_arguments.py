"""Print the uv arguments that install one build of torch, one argument per line.

Usage: torch_arguments.py BUILD [GFX]

BUILD is a ROCm release such as rocm10.1, or a value of uv's --torch-backend such as cpu or
cu130. GFX is the GPU architecture, such as gfx942. Without GFX, the script queries the Linux
kernel. If the machine has no AMD GPU, the script requests the kernels for all architectures. The
environment variable MACHINE names a different root folder for the files that the script reads.

The setup runs this script before it installs anything, so the script needs only Python 3.11.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

COURSE = Path(__file__).parents[2]
TABLE = COURSE / "src/proflab/releases.toml"
LIMIT = re.compile(
    r"torch>=(?P<torch>[\d.]+)(; python_version (?P<sign><|>=) '(?P<python>[\d.]+)')?"
)


def main(build: str, architecture: str = "") -> int:
    """Print the arguments and return 0, or return 2 if no package index has a suitable torch."""
    if not build.startswith("rocm"):
        print("--torch-backend", build, sep="\n")
        return 0
    rows = {f"rocm{row['rocm']}": row for row in tomllib.loads(TABLE.read_text())["torch_build"]}
    # A patch release such as 7.2.4 may have a separate index. Otherwise, use its release's index.
    row = rows.get(build) or rows.get(".".join(build.split(".")[:2]))
    needed = needed_torch()
    if row is None or number(row["torch"]) < number(needed):
        if row is None:
            reason = "we don't know a package index with torch for this ROCm release"
        else:
            reason = (
                f"its index ends at torch {row['torch']}, but the course needs torch"
                f" {needed} or newer"
            )
        suitable = [name for name in rows if number(rows[name]["torch"]) >= number(needed)]
        say(
            f"can't install TORCH={build}: {reason}. Use your site's own PyTorch, or choose the"
            f" nearest of these builds that your GPU driver supports: {' '.join(suitable)}"
        )
        return 2
    if row.get("uv"):
        print("--torch-backend", f"rocm{row['rocm']}", sep="\n")
        return 0
    extra = ""
    if row.get("per_gpu"):
        architecture = architecture or architecture_here()
        extra = f"[device-{architecture or 'all'}]"
        if not architecture:
            say(
                "this machine has no AMD GPU, so the setup downloads the kernels for all"
                " architectures (10 GB). To download only one architecture (2 GB), name it:"
                f" make setup TORCH={build} GFX=gfx942"
            )
    say(f"installing torch {row['torch']} from {row['index']} (as of {row['looked_up']})")
    # Other packages come from the default index. Without this option, uv would take each package
    # from the first index that has any version of the package.
    print("--index", row["index"], "--index-strategy", "unsafe-best-match", sep="\n")
    print(f"torch{extra}=={row['torch']}", f"torchvision{extra}=={row['torchvision']}", sep="\n")
    return 0


def needed_torch() -> str:
    """Return the oldest torch that pyproject.toml allows for the running Python version."""
    extras = tomllib.loads((COURSE / "pyproject.toml").read_text())["project"]
    for requirement in extras["optional-dependencies"]["train"]:
        if limit := LIMIT.fullmatch(requirement):
            newer = limit["python"] is None or sys.version_info >= number(limit["python"])
            if limit["sign"] is None or newer == (limit["sign"] == ">="):
                return limit["torch"]
    raise ValueError("pyproject.toml has no lower limit for torch")


def number(version: str) -> tuple[int, ...]:
    """Return a version as comparable numbers without the local part: 2.9.1+rocm6.4 is (2, 9, 1)."""
    return tuple(int(part) for part in version.split("+")[0].split("."))


def say(text: str) -> None:
    """Print one line of setup output on standard error."""
    print(f"setup: {text}", file=sys.stderr)


def architecture_here() -> str:
    """Return the architecture of this machine's first AMD GPU, or "" without a GPU.

    The Linux kernel reports the architecture as a number. For example, 90402 is gfx942, and
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
