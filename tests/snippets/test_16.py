"""The snippet of lesson 16: Triton's cache, an example that is compiled where Triton is, and a line
where it isn't.
"""

from __future__ import annotations

import gzip
import shutil
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.snippets.conftest import Run

SCRIPT = "snippets/16_compiler.py"
COMPILED = REPOSITORY / "lessons/16_compiler/compiled/3.9.0"
NO_TRITON = (
    "import sys, runpy; sys.modules['triton'] = None; sys.argv = ['x']; runpy.run_path({!r},"
    " run_name='__main__')"
)


def unpack(case: str, folder: Path) -> None:
    """A kernel as it lies in Triton's cache."""
    for file in (COMPILED / case).iterdir():
        if file.suffix == ".gz":
            (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, folder)


def test_what_was_compiled_is_listed(bare: Run, tmp_path: Path) -> None:
    for case in ("256x256x64_8warps_gfx950", "128x128x64"):
        folder = tmp_path / "cache" / case
        folder.mkdir(parents=True)
        unpack(case, folder)
    assert bare("python", SCRIPT, "cache").stdout.splitlines() == [
        "128x128x64/matmul gfx942 VGPR 208 AGPR 0 LDS 32768 spilled 0 spill code 0 warps 4 waves 2",
        (
            "256x256x64_8warps_gfx950/matmul gfx950 VGPR 256 AGPR 128 LDS 136112 spilled 69 spill"
            " code 43 warps 8 waves 2"
        ),
    ]


def test_a_folder_without_kernels_says_so(bare: Run) -> None:
    done = bare("python", SCRIPT, ".", check=False)
    assert (done.returncode, done.stderr) == (
        1,
        ".: no *.amdgcn here, so nothing was compiled for an AMD GPU\n",
    )


def test_packed_assembly_is_not_taken_for_none(bare: Run, tmp_path: Path) -> None:
    shutil.copytree(COMPILED / "128x128x64", tmp_path / "packed")
    done = bare("python", SCRIPT, "packed", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("packed: only packed *.amdgcn.gz here: unpack")


def test_an_example_is_compiled_without_a_gpu_where_triton_is(bare: Run, tmp_path: Path) -> None:
    done = bare("python", SCRIPT, check=False, TRITON_CACHE_DIR=str(tmp_path / "cache"))
    assert done.stdout.startswith("add gfx942 VGPR ") == bool(find_spec("triton"))


def test_without_triton_it_says_so_in_one_line(bare: Run) -> None:
    done = bare("python", "-c", NO_TRITON.format(str(REPOSITORY / SCRIPT)), check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("triton is not installed here")
