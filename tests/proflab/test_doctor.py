"""The doctor on machines that do not exist: which rows are not fine on each."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from proflab.__main__ import main
from proflab.doctor import run_doctor
from proflab.doctor.checks import CHECKS, Check, architecture
from proflab.doctor.machine import Machine
from proflab.doctor.torch_child import profilers_in
from tools.issue_page import all_issues

GB = 10**9
MI300X = "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\n"
EPYC = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n"
NODES = "sys/class/kfd/kfd/topology/nodes"
LINUX = {
    "proc/mounts": "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n",
    "proc/meminfo": "MemTotal:       64000000 kB\nMemAvailable:   60000000 kB\n",
    "proc/self/cgroup": "0::/slurm/job_17\n",
    "proc/sys/kernel/perf_event_paranoid": "2\n",
    "tmp/x": "",
}
GPU = {
    "dev/kfd": "",
    "dev/dri/renderD128": "",
    f"{NODES}/0/properties": EPYC,
    f"{NODES}/1/properties": MI300X,
    "opt/rocm/.info/version": "7.1.1-38\n",
}
IDLE_CARD = {"sys/bus/pci/devices/0/vendor": "0x1002", "sys/bus/pci/devices/0/class": "0x120000"}
PROGRAMS = {
    **dict.fromkeys(("rocprof-sys-run", "rocprof-compute"), "echo version 1.2.3"),
    **dict.fromkeys(("amd-smi", "runTracer.sh", "omnistat-query"), "echo v26.1.0"),
    "rocprofv3": """\
while [ $# -gt 0 ] && [ "$1" != -d ]; do shift; done
[ -z "$2" ] && { echo version: 1.1.0; exit; }
printf 'Kind\\nKERNEL_DISPATCH\\n' >$2/one_kernel_trace.csv""",
}
TORCH = {
    "hip": "__version__ = '2.10.0+rocm7.1'\nhip: Optional[str] = '7.1'\ncuda = None\n",
    "cuda": "__version__ = '2.10.0+cu128'\nhip: Optional[str] = None\ncuda = '12.8'\n",
    "cpu": "__version__ = '2.10.0+cpu'\nhip: Optional[str] = None\ncuda = None\n",
    "none": "",
}
STAGES = """\
echo '{"stage": "import", "version": "2"}'
echo '{"stage": "device", "count": 1, "name": "MI300X"}'
echo '{"stage": "kernel", "right": true, "recorded": 1, "profilers": []}'"""
SDK = "torch/lib/librocprofiler-sdk.so.1"
MAPS = f"""\
7f0000000000-7f0000001000 r--p 00000000 08:01 11    /venv/lib/python3.12/site-packages/{SDK}
7f0000001000-7f0000002000 r-xp 00001000 08:01 11    /venv/lib/python3.12/site-packages/{SDK}
7f0000002000-7f0000003000 r-xp 00000000 08:01 12    /opt/rocm-7.2.0/lib/librocprofiler-register.so.0
7f0000003000-7f0000004000 r-xp 00000000 08:01 13    /opt/rocm-7.2.0/lib/libroctracer64.so.4.1.70200
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
7f0000005000-7f0000006000 r-xp 00000000 08:01 14    /usr/lib/libc.so.6
"""
RESIDENT = STAGES.replace('"profilers": []', f'"profilers": ["{SDK}"]')
NO_KERNEL = {"torch at work": "fix", "resident profiler": "unknown"}

Change = dict[str, str]
MACHINES: dict[str, tuple[dict, dict[str, str]]] = {
    "laptop": ({"files": {}, "torch": "cpu"}, {"AMD GPU": "note"}),
    "laptop without torch": ({"files": {}, "torch": "none"}, {"AMD GPU": "note", "torch": "note"}),
    "GPU node": ({}, {}),
    "closed": ({"closed": "/dev/kfd"}, {"access to the GPU": "fix"}),
    "no driver": ({"files": IDLE_CARD, "torch": "cpu"}, {"AMD GPU": "fix"}),
    "hidden": ({"environment": {"HIP_VISIBLE_DEVICES": "-1"}}, {"visible GPUs": "fix"}),
    "hidden twice": (
        {"environment": {"ROCR_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "4"}},
        {"visible GPUs": "note"},
    ),
    "one mask": ({"environment": {"ROCR_VISIBLE_DEVICES": "4"}}, {}),
    "no ROCm": ({"without": "opt/rocm/.info/version"}, {"ROCm": "fix"}),
    "tool is missing": ({"programs": {"rocprof-compute": None}}, {"rocprof-compute": "fix"}),
    "tool is a stand-in": (
        {"programs": {"rocprof-sys-run": "exec python -m proflab.tapes"}},
        {"rocprof-sys": "fix"},
    ),
    "tool is broken": (
        {"programs": {"rocprof-compute": "echo No module named dash; exit 1"}},
        {"rocprof-compute": "fix"},
    ),
    "tool hangs": ({"programs": {"amd-smi": "sleep 100"}, "patience_s": 1}, {"amd-smi": "unknown"}),
    "rocprofv3 records nothing": (
        {"programs": {"rocprofv3": "echo version 1.1.0"}},
        {"rocprofv3 at work": "fix"},
    ),
    "preloaded": (
        {"environment": {"HSA_TOOLS_LIB": "librocprofiler64.so"}},
        {"preloaded tools": "fix"},
    ),
    "other Python": ({"environment": {"VIRTUAL_ENV": "/somewhere"}}, {"Python": "note"}),
    "wrong torch": ({"torch": "cuda"}, {"torch": "fix"}),
    "torch of another ROCm": ({"files": {"opt/rocm/.info/version": "6.4.0"}}, {"torch": "note"}),
    "torch fails": ({"child": "echo boom; exit 1"}, NO_KERNEL),
    "torch sees nothing": (
        {"child": """echo '{"stage": "device", "count": 0}'"""},
        NO_KERNEL,
    ),
    "profiler records nothing": (
        {"child": STAGES.replace('"recorded": 1', '"recorded": 0')},
        {"torch at work": "fix"},
    ),
    "profiler is resident": ({"child": RESIDENT}, {"resident profiler": "note"}),
    "profiler is switched off": (
        {"child": RESIDENT, "environment": {"ROCPROFILER_REGISTER_ENABLED": "0"}},
        {},
    ),
    "profiler is brought": (
        {"child": RESIDENT, "environment": {"ROCP_TOOL_LIBRARIES": "libomnistat_trace.so"}},
        {"resident profiler": "note", "preloaded tools": "fix"},
    ),
    "rank": ({"environment": {"RANK": "1", "WORLD_SIZE": "2"}}, {"ranks": "note"}),
    "few cores": (
        {"files": {"sys/fs/cgroup/slurm/job_17/cpu.max": "200000 100000"}},
        {"cores": "note"},
    ),
    "limit on memory": (
        {"files": {"sys/fs/cgroup/slurm/memory.max": "1000000"}},
        {"memory": "fix"},
    ),
    "little memory": ({"files": {"proc/meminfo": "MemAvailable: 3000000 kB"}}, {"memory": "note"}),
    "full disk": (
        {"free": GB // 2},
        {"space for results": "fix", "temporary space": "fix"},
    ),
    "home on NFS": ({"environment": {"HOME": "/home/ada"}}, {"MIOpen databases": "fix"}),
    "no counters": (
        {"files": {"proc/sys/kernel/perf_event_paranoid": "4"}},
        {"CPU counters": "note"},
    ),
    "no attaching": ({"files": {"proc/sys/kernel/yama/ptrace_scope": "1"}}, {"attaching": "note"}),
    "over SSH": ({"environment": {"SSH_CONNECTION": "a b c d"}}, {"notebook's address": "note"}),
    "job": ({"environment": {"SLURM_JOB_ID": "17"}}, {"notebook's address": "note"}),
    "hub": ({"environment": {"SLURM_JOB_ID": "17", "JUPYTERHUB_USER": "ada"}}, {}),
}
"""Name -> changes to a node with one GPU where all is well, and the rows that are then not fine."""


class Fake(Machine):
    """A machine of files and programs in a folder."""

    def __init__(
        self,
        root: Path,
        files: Change | None = None,
        programs: dict[str, str | None] | None = None,
        environment: Change | None = None,
        torch: str = "hip",
        child: str = STAGES,
        without: str = "",
        closed: str = "",
        free: int = 100 * GB,
        patience_s: float = 20,
    ) -> None:
        path = {"PATH": f"{root / 'opt/rocm/bin'}:/usr/bin:/bin", "HOME": "/"}
        super().__init__(path | (environment or {}), patience_s, root)
        on_gpu = files is None or not {"", *files} <= {"", *IDLE_CARD}
        every = LINUX | (GPU if on_gpu else {}) | (files or {})
        tools = (PROGRAMS | (programs or {})) if on_gpu else {}
        every |= {f"opt/rocm/bin/{name}": f"#!/bin/sh\n{text}\n" for name, text in tools.items()
                  if text is not None}  # fmt: skip
        for name, text in every.items():
            if name != without:
                file = self.path(name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
                file.chmod(0o755)
        self.torch, self.free, self.closed = TORCH[torch], free, closed
        self.child = child if on_gpu else STAGES.replace('"count": 1', '"count": 0')

    def run(self, *command: str):
        if "proflab.doctor.torch_child" in command[:3]:
            return super().run("/bin/sh", "-c", self.child)
        return super().run(*command)

    def module_file(self, package: str, name: str) -> str:
        return self.torch

    def may_use(self, name: str) -> bool:
        return name != self.closed

    def space(self, folder: str) -> tuple[int, bool]:
        return self.free, True

    def cores(self) -> int:
        return 96


@pytest.mark.parametrize("name", MACHINES)
def test_rows_that_are_not_fine(tmp_path: Path, name: str):
    changes, expected = MACHINES[name]
    findings = run_doctor(Fake(tmp_path, **changes))
    assert [one.check for one in findings] == list(CHECKS)
    found = {
        one.check: one.status
        for one in findings
        if one.status not in ("ok", "not needed") and one.check not in ("data set", "Slurm")
    }
    assert found == expected, findings
    assert all(one.fix for one in findings if one.status == "fix")


def test_the_profilers_in_a_process_and_what_brought_them(tmp_path: Path):
    assert profilers_in(MAPS) == ["rocm-7.2.0/lib/libroctracer64.so.4.1.70200", SDK]
    only = {"resident profiler": CHECKS["resident profiler"]}
    (own,) = run_doctor(Fake(tmp_path / "own", child=RESIDENT), only)
    assert SDK in own.found
    loader = {"HSA_TOOLS_LIB": "/opt/rocm/lib/librocprofiler64.so"}
    (brought,) = run_doctor(Fake(tmp_path / "env", child=RESIDENT, environment=loader), only)
    assert "HSA_TOOLS_LIB" in brought.found


def test_a_check_that_hangs_or_fails_costs_no_other(tmp_path: Path):
    def fail(machine: Machine) -> tuple[str, str]:
        raise ValueError("broken")

    checks = {
        "hangs": Check(lambda machine: time.sleep(30)),
        "fails": Check(fail),
        "fine": Check(lambda machine: ("ok", "all\nis \x1b[31mwell")),
    }
    found = run_doctor(Fake(tmp_path, patience_s=-2.5), checks)
    assert [one.status for one in found] == ["unknown", "unknown", "ok"]
    assert found[2].found.isprintable()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [(MI300X, "gfx942"), (EPYC, None), (MI300X.replace("90402", "90010"), "gfx90a"), ("", None)],
)
def test_architectures_have_hexadecimal_steppings(properties: str, expected: str | None):
    assert architecture(properties) == expected


def test_every_known_issue_of_a_check_is_on_the_page():
    assert {check.issue for check in CHECKS.values() if check.issue} <= set(all_issues())


def test_rows_that_the_known_issues_name_are_there():
    rows = [
        row
        for issue in all_issues().values()
        for phrase in re.findall(
            r"doctor's rows? (\*[^*]+\*(?:(?:, | and )\*[^*]+\*)*)", issue.check
        )
        for row in re.findall(r"\*([^*]+)\*", phrase)
    ]
    assert len(rows) > 30
    assert set(rows) <= set(CHECKS)


def test_the_command_states_what_is_to_fix(capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    monkeypatch.setattr("proflab.doctor.checks._nvidia", lambda machine: True)
    assert main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert "visible GPUs" in [one["check"] for one in report["findings"] if one["status"] == "fix"]
