"""The settings of rocprof-sys: defaults, configuration files, environment, options."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gpumodel.workload import Sampling
from proflab.standins import release
from proflab.standins.options import ToolError

SETTINGS: Mapping[str, list[str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Name -> default and meaning."""

_WALL_CLOCK, _CPU_TIME = "ROCPROFSYS_SAMPLING_REALTIME", "ROCPROFSYS_SAMPLING_CPUTIME"

ADVANCED = frozenset({_WALL_CLOCK, f"{_WALL_CLOCK}_FREQ", _CPU_TIME, f"{_CPU_TIME}_FREQ"})
"""Settings of the category advanced, which `rocprof-sys-avail` shows only with `--advanced`
(config.cpp).
"""

UP_TO_6_4 = {
    "ROCPROFSYS_USE_AMD_SMI": "ROCPROFSYS_USE_ROCM_SMI",
    "ROCPROFSYS_AMD_SMI_METRICS": "ROCPROFSYS_ROCM_SMI_METRICS",
}
"""Today's names -> the names in ROCm 6.4 (CHANGELOG of rocprof-sys 1.1.0)."""

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
    """Values by today's names, from defaults, files, the environment and the command line; a later
    source overrides earlier ones.
    """

    def __init__(
        self, files: str, environment: Mapping[str, str], options: Mapping[str, str]
    ) -> None:
        """`files` are joined by colons. Raises ToolError for a file that cannot be read or has an
        unknown name.
        """
        self._values = {name: default_of(name) for name in SETTINGS}
        given: dict[str, str] = {}
        for file in filter(None, files.split(":")):
            given |= read_file(Path(file))
        today = {name_in_release(name): name for name in UP_TO_6_4}
        for name in given:
            # By ROCPROFSYS_STRICT_CONFIG, which is on by default.
            if name in {*UP_TO_6_4, *UP_TO_6_4.values()} - {*today}:
                raise ToolError(f"[rocprof-sys] unknown setting {name} in {files}", 1)
        given |= {
            name: value for name, value in environment.items() if name.startswith("ROCPROFSYS_")
        }
        given = {today.get(name, name): value for name, value in given.items()}
        given |= options
        if (
            not release.is_at_least("10.1")
            and "ROCPROFSYS_PROFILE" in given
            and "ROCPROFSYS_TRACE" not in given
        ):
            self._values["ROCPROFSYS_TRACE"] = (
                "false" if given["ROCPROFSYS_PROFILE"].lower() in _ON else "true"
            )
        self._values |= given

    def text(self, name: str) -> str:
        """The value of a setting."""
        return self._values[name]

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self._values[name].strip().lower() in _ON

    def number(self, name: str) -> float:
        """The value of a setting that is a number. Raises ToolError for another value."""
        try:
            return float(self._values[name])
        except ValueError:
            raise ToolError(
                f"[rocprof-sys] {name} must be a number, not {self._values[name]!r}", 1
            ) from None

    def sampling(self) -> Sampling | Literal[False]:
        """How call stacks are sampled: by CPU time if no clock is chosen; False if they are not.
        Raises ToolError.
        """
        if not self.on("ROCPROFSYS_USE_SAMPLING"):
            return False
        clocks = [name for name in (_WALL_CLOCK, _CPU_TIME) if self.on(name)] or [_CPU_TIME]
        rates = {name: self._rate(name) for name in clocks}
        return Sampling(
            by_wall_clock=rates.get(_WALL_CLOCK, 0), by_cpu_time=rates.get(_CPU_TIME, 0)
        )

    def _rate(self, clock: str) -> float:
        """Samples per second by a clock: its own setting, or that of all clocks if its own is not
        above 0.
        """
        rate = self.number(f"{clock}_FREQ")
        rate = rate if rate > 0 else self.number("ROCPROFSYS_SAMPLING_FREQ")
        if rate <= 0:
            raise ToolError(
                f"[rocprof-sys] ROCPROFSYS_SAMPLING_FREQ must be above 0, not {rate:g}", 1
            )
        return rate


def name_in_release(name: str) -> str:
    """The name of a setting in this release."""
    return name if release.is_at_least("7.0") else UP_TO_6_4.get(name, name)


def default_of(name: str) -> str:
    """The value of a setting that is not set, in this release."""
    value = SETTINGS[name][0]
    stated = release.default("rocprof-sys", name, value)
    return stated if stated in ("true", "false") else value


def read_file(path: Path) -> dict[str, str]:
    """The settings of a configuration file with lines `NAME = value`; `#` starts a comment. Raises
    ToolError for a file that cannot be read.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ToolError(
            f"[rocprof-sys] configuration file {path} cannot be read ({error.strerror})", 1
        ) from error
    found = {}
    for line in lines:
        name, equals, value = line.partition("#")[0].partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found


def settings_of(tool: str, options: argparse.Namespace) -> dict[str, str]:
    """The settings that the options set: name -> value."""
    values = {name: getattr(options, key) for key, name in _VALUE_SETTINGS.items()}
    found = {name: str(value) for name, value in values.items() if value is not None}
    if tool == "rocprof-sys-sample" or options.sample is not None:
        found["ROCPROFSYS_USE_SAMPLING"] = "true"
    found |= _clocks_of(tool, options)
    found |= {name: "true" for key, name in _SWITCH_SETTINGS.items() if getattr(options, key)}
    if options.output:
        names = ("ROCPROFSYS_OUTPUT_PATH", "ROCPROFSYS_OUTPUT_PREFIX")
        found |= dict(zip(names, options.output, strict=False))
    for backends, value in ((options.include, "true"), (options.exclude, "false")):
        for backend in backends or ():
            names = (
                _BACKEND_SETTINGS.values()
                if backend == "all"
                else (_BACKEND_SETTINGS.get(backend),)
            )
            found |= {name: value for name in names if name}
    return found


def _clocks_of(tool: str, options: argparse.Namespace) -> dict[str, str]:
    """The settings of the sampling clocks that the options set; the first value of an option is the
    samples per second.
    """
    found: dict[str, str] = {}
    if chosen := getattr(options, "sample", None):
        found = {
            name: str(word in chosen).lower()
            for word, name in (("realtime", _WALL_CLOCK), ("cputime", _CPU_TIME))
        }
    # An option of a clock switches the clock on, and its rate is that clock's own.
    for values, name in ((options.realtime, _WALL_CLOCK), (options.cputime, _CPU_TIME)):
        if values is not None:
            found |= {name: "true"} | ({f"{name}_FREQ": values[0]} if values else {})
    if tool == "rocprof-sys-sample" and options.realtime is not None and options.cputime is None:
        found[_CPU_TIME] = "false"
    return found
