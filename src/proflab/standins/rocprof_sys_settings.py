"""The settings of rocprof-sys: defaults, configuration files, environment, options."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path

from proflab.standins import release
from proflab.standins.errors import ToolError

SETTINGS: Mapping[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Name -> default and meaning."""

ADVANCED = frozenset({"ROCPROFSYS_SAMPLING_REALTIME"})
"""Settings of the category advanced, which `rocprof-sys-avail` shows with `--advanced` alone (config.cpp)."""

_BACKEND_SETTINGS = {
    "rocm": "ROCPROFSYS_USE_ROCM",
    "amd-smi": "ROCPROFSYS_USE_AMD_SMI",
    "rcclp": "ROCPROFSYS_USE_RCCLP",
    "mpip": "ROCPROFSYS_USE_MPIP",
    "kokkosp": "ROCPROFSYS_USE_KOKKOSP",
}

_VALUE_SETTINGS = {
    "wait": "ROCPROFSYS_TRACE_DELAY",
    "duration": "ROCPROFSYS_TRACE_DURATION",
    "trace_wait": "ROCPROFSYS_TRACE_DELAY",
    "trace_duration": "ROCPROFSYS_TRACE_DURATION",
    "trace_buffer_size": "ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB",
    "trace_fill_policy": "ROCPROFSYS_PERFETTO_FILL_POLICY",
    "process_freq": "ROCPROFSYS_PROCESS_SAMPLING_FREQ",
    "freq": "ROCPROFSYS_SAMPLING_FREQ",
    "sampling_wait": "ROCPROFSYS_SAMPLING_DELAY",
}
_SWITCH_SETTINGS = {
    "trace": "ROCPROFSYS_TRACE",
    "profile": "ROCPROFSYS_PROFILE",
}

_ON = ("true", "on", "yes", "y", "t", "1")


class Settings:
    """Values by name, from defaults, configuration files, the environment and the command line, the last one wins."""

    def __init__(self, files: str, environment: Mapping[str, str], options: Mapping[str, str]) -> None:
        """`files` are joined by colons. Raises ToolError for a file that is not there or not readable."""
        self._values = {name: default_of(name) for name in SETTINGS}
        given: dict[str, str] = {}
        for file in filter(None, files.split(":")):
            given |= read_file(Path(file))
        given |= {name: value for name, value in environment.items() if name.startswith("ROCPROFSYS_")}
        given |= options
        if not release.is_at_least("10.1") and "ROCPROFSYS_PROFILE" in given and "ROCPROFSYS_TRACE" not in given:
            self._values["ROCPROFSYS_TRACE"] = "false" if given["ROCPROFSYS_PROFILE"].lower() in _ON else "true"
        self._values |= given

    def text(self, name: str) -> str:
        """The value of a setting."""
        return self._values[name]

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self._values[name].strip().lower() in _ON

    def number(self, name: str) -> float:
        """The value of a setting that is a number. Raises ToolError."""
        try:
            return float(self._values[name])
        except ValueError:
            raise ToolError(f"[rocprof-sys] {name} must be a number, not {self._values[name]!r}", 1) from None


def default_of(name: str) -> str:
    """What a setting is without being set: in this release, where it has changed between releases."""
    value = SETTINGS[name][0]
    stated = release.default("rocprof-sys", name, value)
    return stated if stated in ("true", "false") else value


def read_file(path: Path) -> dict[str, str]:
    """The settings of a configuration file of lines `NAME = value`; `#` starts a comment."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ToolError(f"[rocprof-sys] configuration file {path} cannot be read ({error.strerror})", 1) from error
    found = {}
    for line in lines:
        name, equals, value = line.partition("#")[0].partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found


def settings_of(tool: str, options: argparse.Namespace) -> dict[str, str]:
    """The settings that the options set, by name."""
    found = {name: str(getattr(options, key)) for key, name in _VALUE_SETTINGS.items() if getattr(options, key)}
    if tool == "rocprof-sys-sample" or options.sample:
        found["ROCPROFSYS_USE_SAMPLING"] = "true"
    found |= {name: "true" for key, name in _SWITCH_SETTINGS.items() if getattr(options, key)}
    if options.output:
        names = ("ROCPROFSYS_OUTPUT_PATH", "ROCPROFSYS_OUTPUT_PREFIX")
        found |= dict(zip(names, options.output, strict=False))
    for backends, value in ((options.include, "true"), (options.exclude, "false")):
        for backend in backends or ():
            names = _BACKEND_SETTINGS.values() if backend == "all" else (_BACKEND_SETTINGS.get(backend),)
            found |= {name: value for name in names if name}
    return found
