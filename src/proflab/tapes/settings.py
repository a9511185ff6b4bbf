"""The settings of rocprof-sys: defaults, configuration files, environment, options."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from proflab import releases
from proflab.tapes import release
from proflab.tapes.options import FOLDER, ToolError

IGNORED = {
    "ROCPROFSYS_CONFIG_FILE",
    "ROCPROFSYS_VERBOSE",
    "ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB",
    "ROCPROFSYS_PERFETTO_FILL_POLICY",
    "ROCPROFSYS_USE_PID",
}
"""Settings that select no tape."""

UP_TO_6_4 = {
    "ROCPROFSYS_USE_ROCM_SMI": "ROCPROFSYS_USE_AMD_SMI",
    "ROCPROFSYS_ROCM_SMI_METRICS": "ROCPROFSYS_AMD_SMI_METRICS",
}
"""Names in ROCm 6.4 -> today's names (CHANGELOG of rocprof-sys 1.1.0)."""


def settings_of(
    files: Sequence[str], environment: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """Return the value of each setting; a later source overrides earlier ones.

    Raises ToolError for a file that can't be read.
    """
    known = tomllib.loads((FOLDER / "rocprof_sys_settings.toml").read_text(encoding="utf-8"))
    given: dict[str, str] = {}
    for file in files or filter(None, environment.get("ROCPROFSYS_CONFIG_FILE", "").split(":")):
        given |= _read(Path(file))
    given |= {name: environment[name] for name in (*known, *UP_TO_6_4) if name in environment}
    given = {UP_TO_6_4.get(name, name): value for name, value in given.items()} | dict(options)
    found = {name: _default(name, default) for name, (default, _) in known.items()}
    if not release.is_at_least("10.1") and "ROCPROFSYS_PROFILE" in given:
        found["ROCPROFSYS_TRACE"] = str(given["ROCPROFSYS_PROFILE"] != "true").lower()
    found |= {name: value for name, value in given.items() if name in known}
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: str) -> str:
    """Return a value without what changes only its spelling: 500.0 is 500."""
    return f"{float(value):g}" if re.fullmatch(r"-?\d+(\.\d+)?", value) else value


def _default(name: str, otherwise: str) -> str:
    """Return the value of a setting that is not set, in the followed release."""
    found = releases.change("rocprof-sys", name)
    stated = found and found.default_in(release.rocm())
    return stated if stated in ("true", "false") else otherwise


def _read(path: Path) -> dict[str, str]:
    """Return the settings of a file with lines `NAME = value`, in which `#` starts a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ToolError(
            f"[rocprof-sys] configuration file {path} cannot be read ({error.strerror})", 1
        ) from error
    pairs = (line.partition("#")[0].partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}
