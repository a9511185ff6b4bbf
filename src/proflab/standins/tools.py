"""The tools that have a stand-in, and the module of each: to add one, add a line, and a copy of any file in bin."""

from __future__ import annotations

MODULE_OF_TOOL = {
    "amd-smi": "amd_smi",
    "omnistat-query": "omnistat",
    "omnistat-usermode": "omnistat",
    "rocpd": "rocpd",
    "rocprof-compute": "rocprof_compute",
    "rocprof-sys-avail": "rocprof_sys_avail",
    "rocprof-sys-run": "rocprof_sys",
    "rocprof-sys-sample": "rocprof_sys",
    "rocprofv3": "rocprofv3",
    "rocprofv3-avail": "rocprofv3_avail",
    "rpd2tracing": "rpd2tracing",
    "runTracer.sh": "run_tracer",
}
"""The module has `run(tool, options, program) -> int | None`: the exit code, or None to show the help.

It may have `version(tool)`, the text of --version; `split(arguments)`, where a program does not stand behind `--`;
`verify(tool, options, program)`, which raises ToolError for what the tool itself refuses; and `PARSER`, a class of
parser that refuses options in the tool's own words. The options are in options/MODULE.toml.
"""
