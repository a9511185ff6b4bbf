"""Download all files of the public recordings into one folder, the mirror, for the tests.

python -m tools.mirror [--from FOLDER | --where]

`make mirror` runs this tool. A file that is already there with the right hash isn't downloaded
again.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tqdm import tqdm

from proflab.display import size
from proflab.recordings import (
    RecordedFile,
    cache_folder,
    fetch_file,
    load_manifest,
    problem,
)
from tidyprof.atomic_write import whole_file
from tidyprof.standard_streams import tell

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "recordings"
AT_ONCE = 8
"""Number of parallel downloads.

Most files have only a few kilobytes, so a download takes no longer than a request to the server.
"""


def mirror_folder() -> Path:
    """Return the folder of the mirror.

    It is PROFLAB_RECORDINGS, otherwise `shared/recordings` next to the checkout if it exists,
    otherwise a subfolder of the cache of recordings. Lessons look into the cache but not into this
    subfolder, so they show what every learner sees.
    """
    if named := os.environ.get("PROFLAB_RECORDINGS"):
        return Path(named).absolute()
    return BESIDE if BESIDE.is_dir() else cache_folder() / "mirror"


def bring(file: RecordedFile, folder: Path, given: Path | None) -> str | None:
    """Bring one file into the mirror, as a copy from `given` if `given` contains it.

    Return None, or a description of what went wrong.
    """
    try:
        if problem((file,), folder) is None:
            return None
        if given is not None and problem((file,), given) is None:
            _copy(file, folder, given)
        elif os.environ.get("PROFLAB_OFFLINE") == "1":
            return f"{file.path} is missing, and PROFLAB_OFFLINE=1 forbids the download"
        else:
            fetch_file(file, folder)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        return f"{file.path}: {file.url} couldn't be downloaded ({type(error).__name__}: {reason})"
    return None


def _copy(file: RecordedFile, folder: Path, given: Path) -> None:
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as partial:
        shutil.copyfile(given / file.path, partial)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the mirror. Return 0, or 2 after a line for each missing file."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mirror", description="Fetch the public recordings for the tests."
    )
    parser.add_argument(
        "--from", dest="given", type=Path, metavar="FOLDER", help="copy files from this mirror"
    )
    parser.add_argument("--where", action="store_true", help="print the folder without downloading")
    options, folder = parser.parse_args(arguments), mirror_folder()
    if options.where:
        print(folder)
        return 0
    files = [file for entry in load_manifest().values() for file in entry.files if file.url]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        brought = pool.map(partial(bring, folder=folder, given=options.given), files)
        found = list(tqdm(brought, total=len(files), unit="file", disable=None, leave=False))
    wrong = [one for one in found if one]
    for one in wrong:
        tell(f"error: {one}")
    if wrong:
        tell(
            f"error: {folder}: {len(wrong)} of {len(files)} files are missing. To download only"
            " these, run it again. To copy them from a folder, run: make mirror FROM=FOLDER"
        )
        return 2
    print(f"{folder}: {len(files)} files are complete, {size(sum(file.bytes for file in files))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
