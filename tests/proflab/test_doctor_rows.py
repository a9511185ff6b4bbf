"""Known faults, limits of the system, and how the report is shown."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable

import pytest

from proflab.doctor import Finding, Issue, Machine, Report, Status
from proflab.doctor.checkup import check_up
from proflab.doctor.findings import Versions, faults_of, parts
from proflab.doctor.probes import cluster, gpu, limits, pytorch
from proflab.doctor.report import PROBES, SECTIONS, TITLES
from tests.proflab.test_doctor_machines import LINUX, FakeMachine, amd_node, laptop, row, said

GB = 10**9


def test_version_is_its_first_three_numbers() -> None:
    assert parts("7.2.1-81") == (7, 2, 1)
    assert parts("7.2") == (7, 2, 0)
    assert parts("2.10.0+rocm7.0") == (2, 10, 0)
    assert parts("10.1.0a20260805") == (10, 1, 0)
    with pytest.raises(ValueError, match="no version number"):
        parts("unknown")


@pytest.mark.parametrize(
    ("bounds", "version", "has"),
    [
        ({"since": "7.2.1", "last": "7.2.1"}, "7.2.1-81", True),
        ({"since": "7.2.1", "last": "7.2.1"}, "7.2.2", False),
        ({"since": "7.2.1", "last": "7.2.1"}, "7.2", False),
        ({"until": "3.2.1"}, "3.1.0", True),
        ({"until": "3.2.1"}, "3.2.1", False),
        ({"since": "7.2", "until": "7.3"}, "7.2.4", True),
        ({"since": "7.2", "until": "7.3"}, "7.10.0", False),  # ten comes after three
        ({"since": "7.14"}, "10.1.0", True),
    ],
)
def test_versions_that_have_a_fault(bounds: dict[str, str], version: str, has: bool) -> None:
    assert Versions("rocm", **bounds).has(version) is has


def test_bad_release_is_red_and_its_neighbours_are_not() -> None:
    bad, good = (
        {finding.issue for finding in faults_of("rocm", version)} for version in ("7.2.1", "7.2.2")
    )
    assert bad - good == {"roctracer-loses-kernels-on-rocm-721"}
    assert "bfloat16-matrix-products-hang-on-rocm-72" in good
    assert "bfloat16-matrix-products-hang-on-rocm-72" not in {
        f.issue for f in faults_of("rocm", "7.14.0")
    }
    machine = amd_node({"/opt/rocm/.info/version": "7.2.1-81\n"})
    found = [finding for finding in check_up(machine).findings if finding.key == "rocm"]
    assert [finding.status for finding in found].count(Status.FIX) == 1, (
        "HIP graphs may not be in use: a note"
    )
    red = next(finding for finding in found if finding.status is Status.FIX)
    assert red.cure.startswith("Use ROCm 7.2.2 or newer")


def test_fault_of_other_gpus_is_left_out_and_an_uncertain_one_is_a_note() -> None:
    def statuses(*architectures: str) -> list[Status]:
        found = faults_of("rocprof-compute", "3.1.1", architectures)
        return [
            finding.status
            for finding in found
            if finding.issue == "rocprof-compute-peaks-twice-too-high-on-mi300"
        ]

    assert statuses("gfx942", "gfx942") == [Status.FIX]
    assert statuses("gfx90a") == []
    assert statuses() == [Status.NOTE]


def test_fault_of_other_distributions_is_left_out() -> None:
    assert [f.status for f in faults_of("rocm", "7.1.0", (), ("rocky", "rhel"))] == [Status.FIX]
    assert list(faults_of("rocm", "7.1.0", (), ("ubuntu", "debian"))) == []


@pytest.mark.parametrize(
    ("version", "statuses"),
    [
        ("2.11.0+rocm7.2", {"a-torch-wheel-keeps-the-roctracer-of-its-own-rocm": Status.FIX}),
        ("2.11.0", {"a-torch-wheel-keeps-the-roctracer-of-its-own-rocm": Status.NOTE}),
        ("2.11.0+rocm6.4", {Issue.TWO_RELEASES: Status.NOTE}),
        ("2.12.0+rocm7.2", {"spawned-processes-record-no-gpu-work": Status.NOTE}),
    ],
)
def test_faults_of_a_torch_for_rocm_whatever_rocm_is_installed(
    version: str, statuses: dict[str, Status]
) -> None:
    machine = amd_node({"/opt/rocm/.info/version": "7.2.4-1\n"})
    folder = machine.package_folder("torch")
    machine.files[f"{folder}/version.py"] = (
        f"__version__ = '{version}'\nhip: Optional[str] = '7.2.26015'\n"
    )
    found = {finding.issue: finding.status for finding in pytorch.build(machine) if finding.issue}
    assert found == statuses


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ("simd_count 1216\ngfx_target_version 90402\n", "gfx942"),
        ("simd_count 440\ngfx_target_version 90010\n", "gfx90a"),
        ("simd_count 0\ngfx_target_version 0\n", None),
        ("", None),
        ("simd_count many\n", None),
        ("\x00\xff", None),
    ],
)
def test_architecture_of_a_node(properties: str, name: str | None) -> None:
    assert gpu.architecture(properties) == name


def answer(probe: Callable[[Machine], Iterable[Finding]], machine: Machine) -> Finding:
    """The first finding of a probe's function."""
    return next(iter(probe(machine)))


@pytest.mark.parametrize(
    ("free_kb", "limit", "status", "words"),
    [
        (60_000_000, None, Status.OK, "61.4 GB free of 65.5 GB"),
        (60_000_000, 16 * GB, Status.OK, "limit of this job 16.0 GB"),
        (60_000_000, 4 * GB, Status.NOTE, "limit of this job 4.0 GB"),
        (60_000_000, 1 * GB, Status.FIX, "limit of this job 1.0 GB"),
        (1_000_000, None, Status.FIX, "1.0 GB free"),
    ],
)
def test_memory_is_what_the_control_group_leaves(
    free_kb: int, limit: int | None, status: Status, words: str
) -> None:
    files = {
        **LINUX,
        "/proc/meminfo": f"MemTotal:       64000000 kB\nMemAvailable:   {free_kb} kB\n",
        "/proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_12/step_0\n",
        # Slurm limits the job, a folder above the one of this process.
        "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12/memory.max": "max\n"
        if limit is None
        else f"{limit}\n",
    }
    found = answer(limits.memory, FakeMachine(files))
    assert found.status is status
    assert words in found.found


def test_control_groups_of_both_versions() -> None:
    text = "4:memory:/slurm/uid_1/job_2\n1:cpu,cpuacct:/a\n0::/b/c\nnonsense\n"
    machine = FakeMachine({"/proc/self/cgroup": text})
    assert limits.control_groups(machine, "memory") == [
        "/sys/fs/cgroup/memory/slurm/uid_1/job_2",
        "/sys/fs/cgroup/memory/slurm/uid_1",
        "/sys/fs/cgroup/memory/slurm",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/b/c",
        "/sys/fs/cgroup/b",
        "/sys/fs/cgroup",
    ]


@pytest.mark.parametrize(
    ("files", "core_count", "status", "words"),
    [
        ({}, 96, Status.OK, "96 of 96"),
        ({"/sys/fs/cgroup/cpu.max": "150000 100000\n"}, 96, Status.NOTE, "1.5 of 96"),
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, 96, Status.OK, "96 of 96"),
        (
            {
                "/sys/fs/cgroup/cpu.cfs_quota_us": "800000\n",
                "/sys/fs/cgroup/cpu.cfs_period_us": "100000\n",
            },
            96,
            Status.OK,
            "8 of 96",
        ),
        (
            {
                "/sys/fs/cgroup/cpu.cfs_quota_us": "-1\n",
                "/sys/fs/cgroup/cpu.cfs_period_us": "100000\n",
            },
            2,
            Status.NOTE,
            "2 of 2",
        ),
    ],
)
def test_cores_that_may_be_used(
    files: dict[str, str], core_count: int, status: Status, words: str
) -> None:
    found = answer(limits.cores, FakeMachine({**LINUX, **files}, core_count=core_count))
    assert found.status is status
    assert found.found.startswith(words)


def test_file_system_is_that_of_the_deepest_and_last_mount() -> None:
    mounts = (
        "/dev/sda1 / ext4 rw 0 0\n"
        "server:/home /home nfs4 rw 0 0\n"
        "/dev/sdb1 /home/ada/my\\040disk xfs rw 0 0\n"
        "tmpfs /tmp tmpfs rw 0 0\n"
        "scratch /tmp lustre rw 0 0\n"
        "short\n"
    )
    machine = FakeMachine({"/proc/mounts": mounts})
    assert limits.file_system(machine, "/home/ada/.config/miopen") == "nfs4"
    assert limits.file_system(machine, "/home/ada/my disk/x") == "xfs"
    assert limits.file_system(machine, "/homework") == "ext4"
    assert limits.file_system(machine, "/tmp/x") == "lustre"
    assert limits.file_system(FakeMachine({}), "/tmp/x") is None


def test_miopen_on_a_network_file_system_is_red_until_it_is_moved() -> None:
    mounts = {"/proc/mounts": "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs rw 0 0\n"}
    found = row(check_up(amd_node(mounts)), "miopen-cache")
    assert (found.status, found.issue) == (Status.FIX, Issue.MIOPEN_CACHE)
    moved = amd_node(mounts, environment={"MIOPEN_USER_DB_PATH": "/tmp/ada-miopen"})
    assert row(check_up(moved), "miopen-cache").status is Status.OK


def test_rights_of_profilers_are_notes() -> None:
    files = {
        "/proc/sys/kernel/perf_event_paranoid": "4\n",
        "/proc/sys/kernel/yama/ptrace_scope": "1\n",
    }
    machine = FakeMachine({**LINUX, **files})
    assert answer(limits.counters, machine).status is Status.NOTE
    assert answer(limits.attaching, machine).status is Status.NOTE
    garbage = FakeMachine(
        {"/proc/sys/kernel/perf_event_paranoid": "?", "/proc/sys/kernel/yama/ptrace_scope": ""}
    )
    assert answer(limits.counters, garbage).status is Status.UNKNOWN
    assert answer(limits.attaching, garbage).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("free", "status"), [(GB // 2, Status.FIX), (3 * GB, Status.NOTE), (50 * GB, Status.OK)]
)
def test_disk_space(free: int, status: Status) -> None:
    assert {finding.status for finding in limits.disk(laptop(memory_of_disk=free))} == {status}


def test_kind_of_torch_is_read_from_its_version_file() -> None:
    for torch, kind in (
        ("hip = '7.0'\ncuda = None\n", "hip"),
        ("cuda: Optional[str] = '12.8'\n", "cuda"),
        ("x", "cpu"),
    ):
        facts = pytorch.installed(FakeMachine({}, torch=torch))
        assert pytorch.kind_of(facts) == kind


def test_lines_of_others_do_not_disturb_the_stages() -> None:
    text = 'W0101 noise\n{"stage": "import", "hip": null}\n[1, 2]\n{"stage": 7}\n{broken\n'
    assert list(pytorch.stages_of(said(text))) == ["import"]


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs\n", "mpirun (Open MPI) 4.1.4"),
        ("HYDRA build details:\n    Version:    4.1.2\n", "Version: 4.1.2"),
    ],
)
def test_mpi_states_its_version(printed: str, words: str) -> None:
    assert answer(cluster.mpi, FakeMachine({}, {"mpirun": said(printed)})).found == words


def test_slurm_knows_whether_this_is_a_job() -> None:
    machine = FakeMachine(
        {}, {"srun": said("slurm-wlm 22.05.8\n")}, {"SLURM_JOB_ID": "12", "SLURM_NTASKS": "4"}
    )
    assert answer(cluster.slurm, machine).found == "22.05.8, in job 12 with tasks: 4"
    broken = FakeMachine({}, {"srun": said("srun: error: cannot find slurm.conf\n", code=1)})
    assert answer(cluster.slurm, broken).status is Status.NOTE


def test_every_row_has_one_probe_and_every_probe_a_row() -> None:
    keys = [key for probe in PROBES for key in probe.keys]
    assert sorted(keys) == sorted(TITLES)
    answered = {finding.key for finding in check_up(laptop()).findings}
    assert answered == set(TITLES)


def test_every_probe_answers_all_its_keys_on_every_machine() -> None:
    for machine in (laptop(), amd_node(), FakeMachine({}, torch=None)):
        for probe in PROBES:
            assert {finding.key for finding in probe.ask(machine)} == set(probe.keys)


def test_finding_to_be_fixed_needs_a_cure_and_becomes_one_printable_line() -> None:
    with pytest.raises(ValueError, match="needs a cure"):
        Finding("rocm", Status.FIX, "broken")
    assert Finding("rocm", Status.OK, "two\n\x1b[31mlines").found == "two [31mlines"


SAMPLE = Report.of(
    [
        Finding("perfetto", Status.NOTE, "out of reach", "It is the browser that must reach it."),
        Finding(
            "amd-gpu",
            Status.FIX,
            "closed [bold]here[/bold] " + "word " * 20,
            "Open it.",
            Issue.NO_RENDER_GROUP,
        ),
        Finding("rocm", Status.OK, "7.1.1"),
        Finding("memory", Status.UNKNOWN, "hidden", "Look yourself."),
    ],
    seconds=1.25,
)


def shown(width: int) -> list[str]:
    target = io.StringIO()
    SAMPLE.print(target, width)
    return target.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_table_fits_the_terminal(width: int) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    assert "[bold]here[/bold]" in " ".join(lines)  # text of others is no markup


def test_rows_stand_in_their_sections_and_advice_below_by_urgency() -> None:
    text = "\n".join(shown(100))
    places = [
        text.index(word)
        for word in ("GPU\n", "AMD GPU", "ROCm and tools", "Limits", "Course", "To fix", "To find")
    ]
    assert places == sorted(places)
    assert text.index("To fix") < text.index("To find out") < text.index("Notes")
    assert f"docs/known-issues.md#{Issue.NO_RENDER_GROUP}" in text
    assert text.endswith("1 ok, 1 note, 1 fix, 1 unknown; 1.2 s: fix these first")


def test_json_has_stable_keys() -> None:
    record = json.loads(SAMPLE.as_json())
    assert list(record) == ["format", "ok", "seconds", "counts", "findings", "issues"]
    assert record["format"] == 1
    assert record["ok"] is False
    assert record["counts"] == {"ok": 1, "note": 1, "fix": 1, "unknown": 1, "not needed": 0}
    assert record["findings"][1] == {
        "key": "rocm",
        "title": "ROCm",
        "section": "ROCm and tools",
        "status": "ok",
        "found": "7.1.1",
        "cure": None,
        "issue": None,
    }
    assert record["findings"][0]["issue"] == f"docs/known-issues.md#{Issue.NO_RENDER_GROUP}"


def test_json_lists_the_known_issues_of_this_stack_once() -> None:
    findings = [
        Finding("amd-gpu", Status.NOTE, "x", issue=Issue.NO_KFD),
        *faults_of("rocm", "7.2.1", ("gfx942",)),
    ]
    record = json.loads(Report.of([*findings, findings[0]], seconds=1.0).as_json())
    assert [issue["issue"] for issue in record["issues"]] == list(
        dict.fromkeys(f"docs/known-issues.md#{finding.issue}" for finding in findings)
    )
    lost = next(
        issue
        for issue in record["issues"]
        if issue["heading"] == "ROCTracer loses kernels on ROCm 7.2.1"
    )
    assert lost["versions"] == {
        "tool": "rocm",
        "since": "7.2.1",
        "last": None,
        "until": "7.2.2",
        "note": None,
    }
    assert lost["sources"] == ["https://github.com/ROCm/legacy-rocm-build/issues/6102"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", lost["looked"])
    assert {"symptom", "check", "cure"} <= set(lost)


def test_keys_that_scripts_rely_on() -> None:
    assert list(SECTIONS) == ["GPU", "ROCm and tools", "PyTorch", "Cluster", "Limits", "Course"]
    assert {
        "amd-gpu",
        "gpu-access",
        "rocm",
        "rocprofv3",
        "torch",
        "torch-device",
        "slurm",
        "memory",
        "data",
    } <= set(TITLES)


def test_notebook_table_says_the_same() -> None:
    table = SAMPLE.table()
    assert [tuple(line[:2]) for line in table.rows] == [
        ("AMD GPU", "fix"),
        ("ROCm", "ok"),
        ("memory", "unknown"),
        ("Perfetto", "note"),
    ]
    assert "<bold>" not in table._repr_html_()
    assert "Open it." in table.note
