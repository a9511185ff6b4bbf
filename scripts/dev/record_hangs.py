"""Record the flight recorder dumps for lesson 15: python scripts/dev/record_hangs.py [NAMES].

The recording takes half a minute. The script shortens each path to the part that is the same on
every machine. This part is the file name, or PyTorch's path starting with `torch/`. The ranks'
output is saved next to the dumps.
"""

from __future__ import annotations

import importlib.util
import pickle
import re
import shutil
import sys
import tempfile
from pathlib import Path

LESSON = Path(__file__).resolve().parents[2] / "lessons/15_hang"
SNIPPET = LESSON.parents[1] / "snippets/15_find_missing_ranks.py"
KINDS = ("late", "skipped", "other_size", "other_order", "dead", "aborted", "fixed", "unknown")


def main() -> None:
    """Record the named kinds of hangs, or all kinds, in lessons/15_hang/recorded."""
    names = sys.argv[1:] or KINDS
    spec = importlib.util.spec_from_file_location("hangs", LESSON / "hangs.py")
    hangs = importlib.util.module_from_spec(spec)
    sys.argv = ["hangs.py", "", str(SNIPPET)]
    spec.loader.exec_module(hangs)

    def unknown(rank: int) -> None:
        """Run with two batches on rank 2 and three on the other ranks. All ranks meet in a
        barrier.
        """
        for _ in range(2 if rank == 2 else 3):
            hangs.dist.all_reduce(hangs.torch.ones(8))
        hangs.dist.barrier()

    with tempfile.TemporaryDirectory() as folder:
        hangs.play([getattr(hangs, name) for name in names if name != "unknown"], folder)
        if "unknown" in names:
            hangs.RANKS = 4
            hangs.play([unknown], folder)
        for name in names:
            shutil.rmtree(LESSON / "recorded" / name, ignore_errors=True)
        for file in sorted(Path(folder).glob("*/*_*")):
            target = LESSON / "recorded" / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".txt":
                target.write_text(re.sub(r"\[\d[\d.]*\]:\d+", "[address]", file.read_text()))
            else:
                target.write_bytes(
                    pickle.dumps(cut_paths(pickle.loads(file.read_bytes())), protocol=2)
                )


def cut_paths(dump: dict) -> dict:
    """Return the dump without this machine's folder names."""
    for entry in dump["entries"]:
        for frame in entry["frames"]:
            name = re.sub(r"^.*/(?=torch/)", "/", frame["filename"])
            frame["filename"] = (
                name
                if name.startswith("/torch/")
                else Path(name).name.replace("record_hangs", "train")
            )
    return dump


if __name__ == "__main__":
    main()
