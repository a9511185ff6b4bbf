"""Settings of rocprof-sys from defaults, configuration files, environment variables and options."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from proflab.tapes.options import FOLDER, ToolError

IGNORED = {
    "ROCPROFSYS_CONFIG_FILE",
    "ROCPROFSYS_VERBOSE",
    "ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB",
    "ROCPROFSYS_PERFETTO_FILL_POLICY",
    "ROCPROFSYS_USE_PID",
}
"""Settings that don't affect the choice of a tape."""


def settings_of(
    files: Sequence[str], environment: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """Return the value of each setting. Later sources override earlier sources.

    Raises ToolError for a file that can't be read.
    """
    known = tomllib.loads((FOLDER / "rocprof_sys_settings.toml").read_text(encoding="utf-8"))
    found = {name: default for name, (default, _) in known.items()}
    for file in files or filter(None, environment.get("ROCPROFSYS_CONFIG_FILE", "").split(":")):
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ToolError(f"[rocprof-sys] {file} can't be read ({error.strerror})", 1) from error
        pairs = (line.partition("#")[0].partition("=") for line in lines)
        found |= {name.strip(): value.strip() for name, _, value in pairs}
    found |= {**environment, **options}
    # Treat 500.0 and 500 as the same value.
    return {name: re.sub(r"\.0$", "", found[name]) for name in known if name not in IGNORED}
