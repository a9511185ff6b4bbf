"""How a writer's file comes into its folder."""

from __future__ import annotations

from pathlib import Path

from cifar_train.whole_files import whole_file


def put(path: Path, content: bytes | str) -> Path:
    """Write a file, which takes the place of one of its name when it is whole: somebody may be reading that one."""
    with whole_file(path) as partial:
        partial.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return path
