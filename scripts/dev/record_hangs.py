"""Record the dumps of lesson 15 on this processor: python scripts/dev/record_hangs.py. Takes half a
minute.

Paths are cut to what every machine has: the file's name, and torch's own path from `torch/` on.
What the ranks printed is kept beside the dumps.
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
KINDS = ("late", "skipped", "other_size", "other_order", "dead", "cured")


def main() -> None:
    """Write lessons/15_hang/recorded anew."""
    spec = importlib.util.spec_from_file_location("hangs", LESSON / "hangs.py")
    hangs = importlib.util.module_from_spec(spec)
    sys.argv = ["hangs.py", "", str(SNIPPET)]
    spec.loader.exec_module(hangs)

    def unknown(rank: int) -> None:
        """The loader of rank 2 has two batches, those of the others have three; at the end all wait
        for each other.
        """
        for _ in range(2 if rank == 2 else 3):
            hangs.dist.all_reduce(hangs.torch.ones(8))
        hangs.dist.barrier()

    with tempfile.TemporaryDirectory() as folder:
        hangs.play([getattr(hangs, kind) for kind in KINDS], folder)
        hangs.RANKS = 4
        hangs.play([unknown], folder)
        shutil.rmtree(LESSON / "recorded", ignore_errors=True)
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
    """The dump without this machine's folders."""
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
