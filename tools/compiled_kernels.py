"""Compile the assembly that lesson 16 ships with the installed Triton.

Run it with `python -m tools.compiled_kernels [CASE...]`. The assembly is written to
lessons/16_compiler/compiled/VERSION. To use another version, run `pip install --no-deps --target
FOLDER triton==3.6.0` and set PYTHONPATH=FOLDER. The lesson uses older versions only for the
settings of both GPUs.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import triton

REPOSITORY = Path(__file__).resolve().parents[1]
LESSON = REPOSITORY / "lessons/16_compiler"


def main() -> None:
    """Compile the named cases, or all of them, and pack the assembly.

    The archive doesn't contain a date or a path of this machine.
    """
    target = LESSON / "compiled" / triton.__version__
    snippet = REPOSITORY / "snippets/16_compiler.py"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, LESSON / "kernels.py", snippet, folder, *sys.argv[1:]], check=True
        )
        shutil.rmtree(target, ignore_errors=True)
        for file in sorted(Path(folder).glob("*/*.*")):
            packed = target / file.parent.name / file.name
            packed.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".json":
                shutil.copyfile(file, packed)
            else:
                text = re.sub(r'"/[^"\n]*"', '"/"', file.read_text())
                packed.with_name(f"{file.name}.gz").write_bytes(
                    gzip.compress(text.encode(), mtime=0)
                )


if __name__ == "__main__":
    main()
