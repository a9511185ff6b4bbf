"""The doctor on whole machines that do not exist: what each of them must be told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import pytest

from cifar_train.data import cifar100
from proflab.doctor import Finding, Issue, Machine, Report, Status, check_up
from proflab.doctor.machine import Answer, Space
from proflab.doctor.probes import gpu
from tidyprof_tests import chrome_writer, rocprofv3_writer

GB = 10**9
MI300X = "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\n"
EPYC = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n"
HIP_TORCH = (
    "__version__ = '2.10.0+rocm7.1'\ncuda: Optional[str] = None\nhip: Optional[str] = '7.0.51831'\n"
)
CUDA_TORCH = (
    "__version__ = '2.10.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
)
CPU_TORCH = "__version__ = '2.10.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"

LINUX = {
    "/proc/mounts": "/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n",
    "/proc/meminfo": "MemTotal:       64000000 kB\nMemFree: 1 kB\nMemAvailable:   60000000 kB\n",
    "/proc/self/cgroup": "0::/user.slice\n",
    "/proc/sys/kernel/perf_event_paranoid": "2\n",
    "/proc/sys/kernel/yama/ptrace_scope": "0\n",
    "/sys/kernel/mm": "",
    "/etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n',
}
DRIVER = {
    "/dev/kfd": "",
    "/dev/dri/card0": "",
    "/dev/dri/renderD128": "",
    "/sys/module/amdgpu/version": "6.14.14\n",
    "/sys/class/kfd/kfd/topology/nodes/0/properties": EPYC,
    "/sys/class/kfd/kfd/topology/nodes/1/properties": MI300X,
    "/sys/class/kfd/kfd/topology/nodes/2/properties": MI300X,
}
ROCM = {"/opt/rocm/.info/version": "7.1.1-38\n"}


class FakeMachine(Machine):
    """A machine of dictionaries: files by path, programs by name, nothing of the machine that runs
    the test.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        programs: Mapping[str, Answer | Callable[[Sequence[str]], Answer]] | None = None,
        environment: Mapping[str, str] | None = None,
        closed: Iterable[str] = (),
        groups: Iterable[str] = ("render", "video"),
        torch: str | None = None,
        memory_of_disk: int = 100 * GB,
        online: bool = True,
        damage: str | None = None,
        core_count: int | None = 96,
    ) -> None:
        super().__init__({"HOME": "/home/ada", **(environment or {})}, patience_s=20.0)
        self.files = dict(files) | ({"/site/torch/version.py": torch} if torch else {})
        self.programs = dict(programs or {})
        self.asked: list[tuple[str, ...]] = []
        self._closed, self._groups, self._torch = set(closed), frozenset(groups), torch
        self._space, self._online, self._damage, self._cores = (
            memory_of_disk,
            online,
            damage,
            core_count,
        )

    def run(self, command: Sequence[str], **more_environment: str) -> Answer:
        self.asked.append(tuple(command))
        name = (
            "torch_child"
            if "proflab.doctor.torch_child" in command[:3]
            else PurePosixPath(command[0]).name
        )
        answer = self.programs[name]
        return answer(command) if callable(answer) else answer

    def which(self, name: str) -> str | None:
        return f"/opt/rocm/bin/{name}" if name in self.programs else None

    def read(self, path: str | Path) -> str | None:
        return self.files.get(str(path))

    def exists(self, path: str | Path) -> bool:
        return any(known == str(path) or known.startswith(f"{path}/") for known in self.files)

    def names(self, folder: str | Path) -> list[str]:
        start = f"{folder}/"
        return sorted(
            {
                known.removeprefix(start).split("/")[0]
                for known in self.files
                if known.startswith(start)
            }
        )

    def may_use(self, path: str | Path) -> bool:
        return str(path) in self.files and str(path) not in self._closed

    def resolved(self, path: str | Path) -> str:
        return str(path)

    def group_of(self, path: str | Path) -> str | None:
        return "render" if str(path) in self.files else None

    def groups(self) -> frozenset[str]:
        return self._groups

    def space(self, path: str | Path) -> Space | None:
        return Space(self._space, True)

    def cores(self) -> tuple[int | None, int | None]:
        return self._cores, self._cores

    def connect(self, host: str, port: int, limit_s: float) -> str | None:
        return None if self._online else "Network is unreachable"

    def package_folder(self, name: str) -> Path | None:
        return Path("/site/torch") if name == "torch" and self._torch else None

    def damage_of_data(self, data_path: Path) -> str | None:
        return self._damage


def said(text: str, code: int = 0) -> Answer:
    """A program that printed `text` and ended."""
    return Answer("exit", code, out=text)


def stages(*records: dict) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


IMPORTED = {"stage": "import", "version": "2.10.0", "hip": "7.0", "cuda": None}
BFLOAT16 = {"stage": "bfloat16", "native": True}
COLLECTIVES = {"stage": "collectives", "library": "2.22.3"}
DEVICE = {"stage": "device", "count": 2, "name": "AMD Instinct MI300X"}
RAN = {"stage": "kernel", "right": True}


def torch_child(kernels: int = 1) -> Callable[[Sequence[str]], Answer]:
    """The child of a GPU node; its trace holds so many kernels."""

    def answer(command: Sequence[str]) -> Answer:
        events = [chrome_writer.kernel("fill", 1000 * k, 500, k) for k in range(1, kernels + 1)]
        events.append(chrome_writer.operator("aten::fill_", 10, 20, 1))
        chrome_writer.write_trace(Path(command[-1]), events)
        return said(stages(IMPORTED, BFLOAT16, COLLECTIVES, DEVICE, RAN))

    return answer


def rocprofv3(command: Sequence[str]) -> Answer:
    """rocprofv3 of ROCm 7.1 on a GPU node: it tells its version, or runs the program and writes one
    kernel.
    """
    if "--version" in command:
        return said("         version: 1.1.0\n    git_revision: abc\n    rocm_version: 7.1.1\n")
    folder = Path(command[command.index("-d") + 1])
    kernel = rocprofv3_writer.Kernel("fill", 0, 900, 1)
    (folder / "one_kernel_trace.csv").write_text(rocprofv3_writer.kernel_csv([kernel]))
    return said(stages(IMPORTED, BFLOAT16, COLLECTIVES, DEVICE, RAN))


NO_DEVICE_CHILD = said(
    stages(IMPORTED, BFLOAT16, COLLECTIVES, {"stage": "device", "count": 0}), code=3
)
TOOLS = {
    "rocprofv3": rocprofv3,
    "rocprof-sys-run": said("rocprof-sys-run v1.2.0 (rev: x, compiler: GNU, rocm: v7.1.1)\n"),
    "rocprof-sys-sample": said("rocprof-sys-sample v1.2.0\n"),
    "rocprof-compute": said(
        "----\nrocprofiler-compute version: 3.7.0 (release)\nGit revision: x\n----\n"
    ),
    "amd-smi": said(
        "AMDSMI Tool: 26.1.0+x | AMDSMI Library version: 26.1.0 | ROCm version: 7.1.1\n"
    ),
    "rocminfo": said(
        "ROCk module version 6.14 is loaded\nRuntime Version:         1.18\nRuntime Ext Version:"
        " 1.7\n"
    ),
}


def laptop(**changes: object) -> FakeMachine:
    return FakeMachine(
        LINUX, {"torch_child": NO_DEVICE_CHILD}, **{"torch": CPU_TORCH, "core_count": 8, **changes}
    )


def amd_node(files: Mapping[str, str] | None = None, **changes: object) -> FakeMachine:
    programs = {**TOOLS, "torch_child": torch_child(), "srun": said("slurm 23.11.1\n")}
    programs |= changes.pop("programs", {})
    wanted = {name: answer for name, answer in programs.items() if answer is not None}
    return FakeMachine(
        {**LINUX, **DRIVER, **ROCM, **(files or {})}, wanted, **{"torch": HIP_TORCH, **changes}
    )


def login_node(**changes: object) -> FakeMachine:
    programs = {**TOOLS, "torch_child": NO_DEVICE_CHILD, "srun": said("slurm 23.11.1\n")}
    return FakeMachine({**LINUX, **ROCM}, programs, **{"torch": HIP_TORCH, **changes})


def row(report: Report, key: str) -> Finding:
    """The first finding of a row."""
    return next(finding for finding in report.findings if finding.key == key)


def reds(report: Report) -> dict[str, str]:
    return {
        finding.key: finding.found for finding in report.findings if finding.status is Status.FIX
    }


def test_laptop_without_gpu_needs_no_repair() -> None:
    report = check_up(laptop())
    assert reds(report) == {}
    assert report.exit_code == 0
    assert row(report, "amd-gpu").status is Status.NOTE
    assert row(report, "amd-gpu").found == "none here"
    for key in (
        "amd-driver",
        "gpu-access",
        "miopen-cache",
        "rocprofv3",
        "rocprofv3-kernel",
        "torch-profiler",
    ):
        assert row(report, key).status is Status.NOT_NEEDED, key
    assert row(report, "torch").found == "2.10.0+cpu, cpu build"
    assert row(report, "torch-device").status is Status.OK
    assert not any(finding.status is Status.UNKNOWN for finding in report.findings)


@pytest.mark.parametrize(
    ("native", "status", "words"),
    [
        (True, Status.OK, "automixed is bfloat16"),
        (False, Status.NOTE, "automixed is float32"),
        (None, Status.UNKNOWN, ""),
    ],
)
def test_the_arithmetic_of_the_processor_is_named(
    native: bool | None, status: Status, words: str
) -> None:
    told = [{"stage": "bfloat16", "native": native}] if native is not None else []
    child = said(stages(IMPORTED, *told, COLLECTIVES, {"stage": "device", "count": 0}), code=3)
    report = check_up(FakeMachine(LINUX, {"torch_child": child}, torch=CPU_TORCH, core_count=8))
    found = row(report, "bfloat16")
    assert found.status is status
    assert words in found.found
    assert reds(report) == {}


def test_amd_node_with_everything_is_green() -> None:
    report = check_up(amd_node())
    assert reds(report) == {}
    assert row(report, "amd-gpu").found == "2 x gfx942"
    assert row(report, "amd-driver").found == "amdgpu 6.14.14"
    assert row(report, "rocm").found == "7.1.1-38 in /opt/rocm"
    assert row(report, "rocprofv3").found == "1.1.0, real, of ROCm 7.1.1-38"
    assert row(report, "rocprof-sys").found.startswith(
        "1.2.0 (rocprof-sys-run, rocprof-sys-sample), real"
    )
    assert row(report, "amd-smi").found.startswith("26.1.0")
    assert row(report, "rocminfo").found.startswith("1.18")
    assert row(report, "torch-device").found == "2 x AMD Instinct MI300X; one kernel ran"
    assert row(report, "torch-profiler").found == "1 kernel row for one kernel"
    assert row(report, "rocprofv3-kernel").found == "1 kernel row for one kernel"
    assert row(report, "collectives").found == "RCCL 2.22.3"
    assert row(report, "rpd").status is Status.NOTE
    assert row(report, "slurm").found == "23.11.1, outside of a job: a login node"


def test_user_outside_of_the_render_group_is_told_the_command() -> None:
    machine = amd_node(
        closed=["/dev/kfd", "/dev/dri/renderD128"],
        groups=["users"],
        programs={"torch_child": NO_DEVICE_CHILD},
    )
    report = check_up(machine)
    found = row(report, "gpu-access")
    assert found.status is Status.FIX
    assert "not in group render" in found.found
    assert "usermod -aG render $USER" in found.cure
    assert found.issue is Issue.NO_RENDER_GROUP
    assert reds(report)["torch-device"] == "torch sees no device, but there is a GPU"
    assert report.exit_code == 1


def test_member_of_the_group_with_a_closed_device_is_not_told_to_join_it() -> None:
    found = row(check_up(amd_node(closed=["/dev/kfd"])), "gpu-access")
    assert found.status is Status.FIX
    assert "usermod" not in found.cure


def test_nvidia_box_counts_its_gpus_and_needs_no_rocm() -> None:
    smi = said("NVIDIA H100 80GB HBM3, 550.54.15\nNVIDIA H100 80GB HBM3, 550.54.15\n")
    child = torch_child(kernels=1)
    files = {**LINUX, "/dev/nvidia0": ""}
    report = check_up(
        FakeMachine(files, {"nvidia-smi": smi, "torch_child": child}, torch=CUDA_TORCH)
    )
    assert reds(report) == {}
    assert row(report, "nvidia-gpu").found == "2 x NVIDIA H100 80GB HBM3, driver 550.54.15"
    assert row(report, "torch-profiler").status is Status.OK
    assert row(report, "collectives").found == "NCCL 2.22.3"
    assert row(report, "rocprofv3").status is Status.NOT_NEEDED


def test_login_node_has_tools_but_no_gpu() -> None:
    report = check_up(login_node())
    assert reds(report) == {}
    assert row(report, "amd-gpu").status is Status.NOTE
    assert "scripts/slurm/jupyter.sh" in row(report, "amd-gpu").cure
    assert row(report, "rocprofv3").status is Status.OK
    assert row(report, "amd-smi").found == "real, of ROCm 7.1.1-38; not asked, since it needs a GPU"
    assert row(report, "rpd").status is Status.NOTE  # missing, though ROCm is here


def test_tools_that_need_a_gpu_are_not_started_without_one() -> None:
    machine = login_node()
    check_up(machine)
    assert "/opt/rocm/bin/rocprofv3" in {command[0] for command in machine.asked}
    assert not {"/opt/rocm/bin/amd-smi", "/opt/rocm/bin/rocminfo"} & {
        command[0] for command in machine.asked
    }


def test_import_of_torch_that_hangs_on_a_login_node_is_named() -> None:
    machine = login_node()
    machine.programs["torch_child"] = Answer("time-out")
    found = row(check_up(machine), "torch-device")
    assert (found.status, found.issue) == (Status.FIX, Issue.IMPORT_HANGS)


def test_slow_import_of_torch_elsewhere_is_unknown_and_not_red() -> None:
    machine = amd_node(programs={"torch_child": Answer("time-out")})
    report = check_up(machine)
    for key in ("torch-device", "collectives"):
        assert row(report, key).status is Status.UNKNOWN, key
    assert "--patience" in row(report, "torch-device").cure


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (
            Answer("exit", -11, err="Segmentation fault"),
            Status.FIX,
            "broken (code -11): Segmentation fault",
        ),
        (
            Answer("exit", 1, err="OSError: libfoo.so"),
            Status.FIX,
            "broken (code 1): OSError: libfoo.so",
        ),
        (Answer("not started", err="Exec format error"), Status.FIX, "it does not start"),
        (Answer("time-out"), Status.UNKNOWN, "no answer in 20 s: stopped"),
        (said("\x1b[31mg\x00rb\u202ege\xff\n"), Status.UNKNOWN, "no version"),
        (said(""), Status.UNKNOWN, "no version"),
        (Answer("flood", out="y\n" * 1000), Status.UNKNOWN, "no version"),
    ],
)
def test_tool_that_misbehaves(answer: Answer, status: Status, words: str) -> None:
    found = row(check_up(amd_node(programs={"rocprof-compute": answer})), "rocprof-compute")
    assert found.status is status
    assert words in found.found
    assert "rocprof-compute --version" in found.cure


def test_missing_python_packages_of_rocprof_compute_are_recognised() -> None:
    answer = Answer(
        "exit",
        1,
        err="[ERROR] The 'dash>=3.0.0' package was not found in the current environment.\n",
    )
    found = row(check_up(amd_node(programs={"rocprof-compute": answer})), "rocprof-compute")
    assert (found.status, found.issue) == (Status.FIX, Issue.COMPUTE_PACKAGES)


def test_rocprofv3_too_old_for_a_version_option_is_fine() -> None:
    old = Answer("exit", 2, err="rocprofv3: error: unrecognized arguments: --version\n")
    machine = login_node()
    machine.files["/opt/rocm/.info/version"] = "6.2.4-66\n"
    machine.programs["rocprofv3"] = old
    found = row(check_up(machine), "rocprofv3")
    assert found.status is Status.OK
    assert found.found == "real, of ROCm 6.2.4-66; too old to state its version"


def test_stand_in_is_right_on_a_laptop_and_wrong_beside_a_gpu() -> None:
    launcher = {
        "/opt/rocm/bin/rocprofv3": '#!/bin/sh\nexec python3 -m proflab.tapes rocprofv3 "$@"\n'
    }
    machine = laptop()
    machine.files |= launcher
    machine.programs["rocprofv3"] = said("never asked")
    found = row(check_up(machine), "rocprofv3")
    assert found.status is Status.OK
    assert "measures nothing" in found.found
    assert not any("rocprofv3" in part for command in machine.asked for part in command)
    report = check_up(amd_node(launcher))
    assert row(report, "rocprofv3").status is Status.FIX
    assert row(report, "rocprofv3-kernel").status is Status.NOT_NEEDED


def test_only_the_predecessor_of_a_tool_is_here() -> None:
    machine = amd_node(
        programs={"rocprof-compute": None, "omniperf": said("omniperf version: 2.0.1")}
    )
    found = row(check_up(machine), "rocprof-compute")
    assert (found.status, found.issue) == (Status.FIX, Issue.LEGACY_TOOLS)
    assert "omniperf" in found.found


def test_trace_without_kernels_is_red_though_the_kernel_ran() -> None:
    report = check_up(amd_node(programs={"torch_child": torch_child(kernels=0)}))
    found = row(report, "torch-profiler")
    assert (found.status, found.issue) == (Status.FIX, Issue.NO_GPU_RECORDS)
    assert "ROCm" not in found.cure  # another one does not reach the tracer in a wheel
    assert row(report, "torch-device").status is Status.OK


@pytest.mark.parametrize(
    ("answer", "issue"),
    [
        (Answer("exit", 3, out=stages(IMPORTED, {"stage": "device", "count": 0})), Issue.IN_A_VENV),
        (Answer("exit", 1, err="RuntimeError: No HIP GPUs are available"), Issue.IN_A_VENV),
        (
            Answer("exit", 1, err="ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED"),
            Issue.TWO_SUBSCRIBERS,
        ),
        (said(stages(IMPORTED, BFLOAT16, COLLECTIVES, DEVICE, RAN)), Issue.NO_GPU_RECORDS),
        (Answer("exit", -6, err="free(): invalid pointer"), None),
    ],
)
def test_what_can_go_wrong_under_rocprofv3(answer: Answer, issue: Issue | None) -> None:
    def tool(command: Sequence[str]) -> Answer:
        return rocprofv3(command) if "--version" in command else answer

    found = row(check_up(amd_node(programs={"rocprofv3": tool})), "rocprofv3-kernel")
    assert (found.status, found.issue) == (Status.FIX, issue)


def test_first_kernel_that_fails_is_red() -> None:
    answer = Answer(
        "exit",
        1,
        out=stages(IMPORTED, BFLOAT16, COLLECTIVES, DEVICE),
        err="RuntimeError: invalid device function",
    )
    found = row(check_up(amd_node(programs={"torch_child": answer})), "torch-device")
    assert found.status is Status.FIX
    assert "invalid device function" in found.found


def test_cuda_torch_on_an_amd_node_is_red() -> None:
    found = row(
        check_up(amd_node(torch=CUDA_TORCH, programs={"torch_child": NO_DEVICE_CHILD})), "torch"
    )
    assert (found.status, found.issue) == (Status.FIX, Issue.WRONG_TORCH)


def test_without_torch_the_rest_is_still_checked() -> None:
    report = check_up(laptop(torch=None))
    assert report.exit_code == 0
    assert row(report, "torch").status is Status.NOTE
    assert row(report, "torch-device").status is Status.NOT_NEEDED
    assert row(check_up(amd_node(torch=None)), "rocprofv3-kernel").status is Status.UNKNOWN


def test_without_proc_and_sys_things_are_unknown_and_not_green() -> None:
    report = check_up(
        FakeMachine({}, {"torch_child": NO_DEVICE_CHILD}, torch=CPU_TORCH, core_count=None)
    )
    for key in ("amd-gpu", "memory", "perf-counters", "ptrace-scope", "cores"):
        assert row(report, key).status is Status.UNKNOWN, key
    assert report.exit_code == 0


def test_card_without_driver_is_red() -> None:
    card = {
        "/sys/bus/pci/devices/0000:c1:00.0/vendor": "0x1002\n",
        "/sys/bus/pci/devices/0000:c1:00.0/class": "0x120000\n",
    }
    machine = laptop()
    machine.files |= card
    found = row(check_up(machine), "amd-gpu")
    assert (found.status, found.issue) == (Status.FIX, Issue.NO_KFD)
    machine.files["/sys/bus/pci/devices/0000:c1:00.0/class"] = "0x030000\n"  # a display card
    assert row(check_up(machine), "amd-gpu").status is Status.NOTE


def test_damaged_data_set_is_red_and_absent_one_is_not() -> None:
    staged = {f"data/{cifar100.FOLDER}/train": ""}
    machine = laptop(damage="data/cifar-100-python/test is missing")
    assert row(check_up(machine), "data").status is Status.NOTE
    machine.files |= staged
    found = row(check_up(machine), "data")
    assert found.status is Status.FIX
    assert "python -m cifar_train --download-only" in found.cure
    whole = laptop()
    whole.files |= staged
    assert row(check_up(whole), "data").status is Status.OK


def test_being_offline_is_no_reason_for_red() -> None:
    report = check_up(laptop(online=False))
    assert row(report, "perfetto").status is Status.NOTE
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, None),
        (
            {"SSH_CONNECTION": "10.0.0.5 51234 10.0.0.9 22"},
            "ssh -N -L 8888:localhost:8888 10.0.0.9",
        ),
        (
            {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "node7"},
            "`scripts/slurm/jupyter.sh` starts it",
        ),
        ({"SSH_CONNECTION": "a b c d", "JUPYTERHUB_USER": "ada"}, None),
    ],
)
def test_way_to_the_notebook(environment: dict[str, str], words: str | None) -> None:
    found = row(check_up(laptop(environment=environment)), "jupyter")
    if words is None:
        assert found.status is Status.OK
    else:
        assert found.status is Status.NOTE
        assert words in found.cure


@pytest.mark.parametrize(
    ("environment", "status", "words"),
    [
        ({}, Status.OK, "a single process"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, Status.OK, "a single process"),
        (
            {
                "RANK": "0",
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "0",
                "MASTER_ADDR": "n1",
                "MASTER_PORT": "29500",
            },
            Status.NOTE,
            "rank 0 of 4 (torchrun)",
        ),
        ({"RANK": "5", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, Status.FIX, "RANK"),
    ],
)
def test_rank_variables_in_the_shell(
    environment: dict[str, str], status: Status, words: str
) -> None:
    found = row(check_up(laptop(environment=environment)), "ranks")
    assert found.status is status
    assert words in found.found


@pytest.mark.parametrize(
    ("environment", "status"),
    [
        ({}, Status.OK),
        ({"ROCR_VISIBLE_DEVICES": "2"}, Status.OK),
        ({"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "0"}, Status.OK),
        ({"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "2"}, Status.FIX),
        ({"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "1,7"}, Status.OK),
        ({"ROCR_VISIBLE_DEVICES": "GPU-ab12", "HIP_VISIBLE_DEVICES": "GPU-ab12"}, Status.OK),
        ({"HIP_VISIBLE_DEVICES": ""}, Status.FIX),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, Status.FIX),
    ],
)
def test_visibility_variables(environment: dict[str, str], status: Status) -> None:
    assert next(gpu.visibility(amd_node(environment=environment))).status is status


def test_hiding_gpus_that_are_not_there_is_no_fault() -> None:
    assert (
        next(gpu.visibility(laptop(environment={"CUDA_VISIBLE_DEVICES": ""}))).status is Status.NOTE
    )


def test_preloaded_tools_are_red_and_other_preloads_are_not() -> None:
    assert (
        row(
            check_up(laptop(environment={"LD_PRELOAD": "/usr/lib/libjemalloc.so"})), "tools-loaded"
        ).status
        is Status.OK
    )
    for name in ("LD_PRELOAD", "HSA_TOOLS_LIB", "ROCPROFILER_REGISTER_LIBRARY"):
        found = row(
            check_up(laptop(environment={name: "/opt/rocm/lib/librocprofiler-sdk.so"})),
            "tools-loaded",
        )
        assert found.status is Status.FIX, name
        assert f"unset {name}" in found.cure


def test_tools_of_another_release_are_noticed() -> None:
    machine = amd_node(environment={"ROCM_PATH": "/opt/rocm-6.4.1"})
    machine.files["/opt/rocm-6.4.1/.info/version"] = "6.4.1-83\n"
    findings = [finding for finding in check_up(machine).findings if finding.key == "rocm"]
    assert findings[0].found == "6.4.1-83 in /opt/rocm-6.4.1"
    assert [finding.found for finding in findings if finding.issue is Issue.TWO_RELEASES] == [
        "rocprofv3 belongs to ROCm 7.1.1-38, the rest to 6.4.1-83"
    ]


def test_a_torch_of_another_release_than_the_tools_is_noticed() -> None:
    wheel = "__version__ = '2.14.1+rocm7.2'\nhip = '7.2.53211'\ncuda = None\n"
    machine = amd_node({"/opt/rocm/.info/version": "10.1.0-81\n"}, torch=wheel)
    told = [finding for finding in check_up(machine).findings if finding.key == "torch"]
    (found,) = [finding for finding in told if finding.issue is Issue.TWO_RELEASES]
    assert found.found == "torch was built for ROCm 7.2, and the ROCm here is 10.1.0-81"
    assert "TORCH=rocm10.1" in found.cure
    machine.files["/opt/rocm/.info/version"] = "7.2.4\n"
    assert not [one for one in check_up(machine).findings if one.issue is Issue.TWO_RELEASES]
