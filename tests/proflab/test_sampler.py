"""The live sampler: what it reads, what it writes, and what is left of it after an accident."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from proflab.errors import CourseError
from proflab.sampling import amdsmi_source, child, loop, nvml_source, rocm_smi_source, sampler
from proflab.sampling.gpus import UNITS, open_gpus
from proflab.sampling.host_source import HostSource, ProcessTree, cpu_shares
from proflab.sampling.loop import sample_until
from proflab.sampling.readings import HEADER, Reading, SourceUnavailable, known, lines
from tidyprof.readers.system.reader import QUANTITIES, SAMPLER_COLUMNS, read_system

FAKE_AMDSMI = '''
"""Two GPUs; the second is a partition whose sensors are silent. Answers have the form of amdsmi 7.0.2."""

from enum import IntEnum

__version__ = "7.0.2"


class AmdSmiException(Exception):
    pass


class AmdSmiTemperatureType(IntEnum):
    EDGE, HOTSPOT, VRAM = 0, 1, 2


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


class AmdSmiClkType(IntEnum):
    GFX, MEM = 0, 4


def amdsmi_init():
    print("a library that talks")


def amdsmi_shut_down():
    pass


def amdsmi_get_processor_handles():
    return ["first", "partition"]


def only_first(device):
    if device != "first":
        raise AmdSmiException("Error code: 2 | not supported")


def amdsmi_get_gpu_activity(device):
    return {"gfx_activity": 97 if device == "first" else "N/A", "umc_activity": 12 if device == "first" else 0xFFFF}


def amdsmi_get_power_info(device):
    only_first(device)
    return {"socket_power": "N/A", "current_socket_power": 650, "average_socket_power": 0, "power_limit": 750}


def amdsmi_get_power_cap_info(device):
    only_first(device)
    return {"power_cap": 750_000_000}


def amdsmi_get_temp_metric(device, kind, metric):
    only_first(device)
    return {1: 69, 2: 50}[kind]


def amdsmi_get_clock_info(device, kind):
    only_first(device)
    return {"clk": {0: 1278, 4: 1300}[kind]}


def amdsmi_get_gpu_vram_usage(device):
    return {"vram_total": 196592, "vram_used": 65535}
'''


def module_of(source: str) -> ModuleType:
    module = ModuleType("amdsmi")
    exec(source, module.__dict__)
    return module


def values(readings: list[Reading], device: int | None = 0) -> dict[str, float]:
    return {reading.name: reading.value for reading in readings if reading.device == device}


class TestReadings:
    def test_file_has_the_columns_that_tidyprof_reads(self) -> None:
        assert HEADER.split(",") == list(SAMPLER_COLUMNS)

    def test_gpu_quantities_are_those_of_tidyprof(self) -> None:
        assert {name: QUANTITIES[name][0] for name in UNITS} == dict(UNITS)

    def test_lines(self) -> None:
        text = lines(17, [Reading(None, "cpu_idle", 12.5, "%"), Reading(1, "memory_used", 206158430208, "bytes")])
        assert text == "17,,cpu_idle,12.5,%\n17,1,memory_used,206158430208,bytes\n"

    @pytest.mark.parametrize("value", ["N/A", None, True, 0xFFFF, 0xFFFFFFFF, 2**64 - 1, float("nan"), float("inf")])
    def test_what_stands_for_not_available(self, value: object) -> None:
        assert known(value) is None

    @settings(max_examples=100)
    @given(
        readings=st.lists(
            st.tuples(st.sampled_from(sorted(UNITS)), st.integers(0, 7), st.floats(0, 100, allow_nan=False)),
            min_size=1,
            max_size=20,
            unique_by=lambda row: row[:2],
        ),
        time_ns=st.integers(10**18, 3 * 10**18),
    )
    def test_round_trip_through_the_reader(self, readings, time_ns: int, tmp_path_factory) -> None:
        rows = [Reading(device, name, value, UNITS[name]) for name, device, value in readings]
        path = tmp_path_factory.mktemp("log") / "system.csv"
        path.write_text(f"{HEADER}\n{lines(time_ns, rows)}")
        table = read_system(path).counters
        assert set(table["time_ns"]) == {time_ns}
        found = {(row.device, row.name): (row.value, row.unit) for row in table.itertuples(index=False)}
        assert found.keys() == {(row.device, row.name) for row in rows}
        for row in rows:
            assert found[row.device, row.name][0] == pytest.approx(row.value, rel=1e-14)
            assert found[row.device, row.name][1] == row.unit


class TestHost:
    def test_shares_by_hand(self) -> None:
        times = namedtuple("times", "user nice system idle iowait irq softirq steal guest")
        before = times(10.0, 1.0, 5.0, 100.0, 1.0, 0.0, 0.0, 0.0, 9.0)
        after = times(11.0, 1.5, 5.25, 102.0, 1.0, 0.0, 0.25, 0.0, 99.0)
        # 1.5 s user with nice, 0.5 s system with softirq, 2 s idle: 4 s in all; guest time is part of user time.
        assert cpu_shares(before, after) == {
            **{"cpu_user": 37.5, "cpu_system": 12.5, "cpu_idle": 50.0, "cpu_iowait": 0.0, "cpu_steal": 0.0}
        }

    def test_no_time_passed_gives_no_rows_and_no_zeros(self) -> None:
        now = psutil.cpu_times()
        assert cpu_shares(now, now) == {}

    def test_what_a_system_does_not_count_is_absent(self) -> None:
        times = namedtuple("times", "user nice system idle")  # macOS
        assert cpu_shares(times(0, 0, 0, 0), times(1, 0, 1, 2)) == {"cpu_user": 25, "cpu_system": 25, "cpu_idle": 50}

    def test_a_clock_that_steps_back_gives_no_negative_share(self) -> None:
        times = namedtuple("times", "user nice system idle iowait")
        shares = cpu_shares(times(0, 0, 0, 0, 5), times(1, 0, 0, 3, 4))
        assert shares == {"cpu_user": 25, "cpu_system": 0, "cpu_idle": 75, "cpu_iowait": 0}

    def test_a_tree_counts_children_and_not_the_sampler(self) -> None:
        busy = "import time\nwhile True: pass"
        with subprocess.Popen([sys.executable, "-c", busy]) as child:
            try:
                tree = ProcessTree(os.getppid())
                seen = {process.pid for process in tree._seconds}
                assert child.pid in seen
                assert os.getpid() not in seen
                own = ProcessTree(child.pid)
                time.sleep(0.5)
                found = values(own.read(), None)
                assert found["process_count"] == 1
                assert 5 < found["process_cpu"] < 120
                assert found["process_memory"] > 1e6
            finally:
                child.kill()
        assert own.read() == []

    def test_total_memory_is_written_once(self) -> None:
        source = HostSource(os.getpid())
        time.sleep(0.05)
        assert values(source.read(), None)["host_memory_total"] == psutil.virtual_memory().total
        assert "host_memory_total" not in values(source.read(), None)

    def test_no_such_process(self) -> None:
        with pytest.raises(SourceUnavailable, match="psutil"):
            HostSource(2**22 + 1)


class TestAmdSmi:
    def test_names_and_units(self) -> None:
        library = module_of(FAKE_AMDSMI)
        source = amdsmi_source.source_of(library, library.amdsmi_get_processor_handles())
        first = source.read()
        assert values(first, 0) == {
            **{"gpu_busy": 97, "memory_busy": 12, "power": 650, "power_cap": 750, "temperature_junction": 69},
            **{"temperature_memory": 50, "clock_graphics": 1278, "clock_memory": 1300},
            **{"memory_used": 65535 * 2**20, "memory_total": 196592 * 2**20},
        }
        assert {reading.unit for reading in first if reading.name == "power_cap"} == {"W"}
        # Of the silent partition only the memory is known: no zeros are made up for the rest.
        assert values(first, 1) == {"memory_used": 65535 * 2**20, "memory_total": 196592 * 2**20}
        assert source.failed["gpu_busy"] == source.failed["memory_busy"] == source.failed["power"] == 1
        later = values(source.read(), 0)
        assert later.keys() == values(first, 0).keys() - {"power_cap", "memory_total"}

    def test_a_release_without_a_name_loses_that_quantity_alone(self) -> None:
        library = module_of(FAKE_AMDSMI)
        del library.AmdSmiClkType, library.amdsmi_get_power_cap_info
        library.amdsmi_get_power_info = lambda device: {"average_socket_power": 171}
        found = values(amdsmi_source.source_of(library, ["first"]).read())
        assert found["power"] == 171
        assert found.keys() & {"clock_graphics", "clock_memory", "power_cap"} == set()
        assert found["gpu_busy"] == 97

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            (None, "not installed"),
            ("raise KeyError('libamd_smi.so')", "can't be imported"),
            ("import torch_of_another_age", "can't be imported"),
            (FAKE_AMDSMI + "\ndef amdsmi_get_processor_handles(): return []", "sees no GPU"),
            (FAKE_AMDSMI + "\ndef amdsmi_init(): raise AmdSmiException('34\\n no driver')", "34 no driver"),
        ],
    )
    def test_why_it_can_not_be_used(self, source: str | None, reason: str, tmp_path: Path, monkeypatch) -> None:
        if source is not None:
            (tmp_path / "amdsmi.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("ROCM_PATH", str(tmp_path / "no_rocm"))
        monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
        with pytest.raises(SourceUnavailable, match=reason):
            amdsmi_source.open_amdsmi()

    def test_the_copy_in_the_rocm_folder_is_found(self, tmp_path: Path, monkeypatch) -> None:
        folder = tmp_path / "share" / "amd_smi"
        folder.mkdir(parents=True)
        (folder / "amdsmi.py").write_text(FAKE_AMDSMI)
        monkeypatch.setenv("ROCM_PATH", str(tmp_path))
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
        source = amdsmi_source.open_amdsmi()
        assert (source.name, len(source.devices)) == ("amdsmi 7.0.2", 2)
        sys.modules.pop("amdsmi")


class FakeRocmSmi:
    """rocm-smi's library: functions return a status and write behind a pointer."""

    def __init__(self, missing: tuple[str, ...] = (), devices: int = 1) -> None:
        answers = {
            "rsmi_num_monitor_devices": devices,
            "rsmi_dev_busy_percent_get": 97,
            "rsmi_dev_memory_busy_percent_get": 12,
            "rsmi_dev_power_ave_get": 324_000_000,
            "rsmi_dev_power_cap_get": 500_000_000,
            "rsmi_dev_temp_metric_get": 58_000,
            "rsmi_dev_memory_usage_get": 300_000_000,
            "rsmi_dev_memory_total_get": 68_702_699_520,
        }
        for name, value in answers.items():
            if name not in missing:
                setattr(self, name, self._function(value))
        if "rsmi_dev_power_get" not in missing:
            self.rsmi_dev_power_get = self._power

    def rsmi_init(self, flags: ctypes.c_uint64) -> int:
        return 0

    def rsmi_shut_down(self) -> int:
        return 0

    def _function(self, value: int):
        def call(*arguments) -> int:
            arguments[-1]._obj.value = value
            return 0

        return call

    def _power(self, device, power, kind) -> int:
        power._obj.value, kind._obj.value = 650_000_000, 1
        return 0


class TestRocmSmi:
    def test_names_and_units(self) -> None:
        found = values(rocm_smi_source.source_of(FakeRocmSmi()).read())
        assert found == {
            **{"gpu_busy": 97, "memory_busy": 12, "power": 650, "power_cap": 500, "temperature_edge": 58},
            **{"temperature_junction": 58, "temperature_memory": 58},
            **{"memory_used": 300_000_000, "memory_total": 68_702_699_520},
        }

    def test_releases_before_6_know_the_average_power_only(self) -> None:
        source = rocm_smi_source.source_of(FakeRocmSmi(missing=("rsmi_dev_power_get",)))
        assert values(source.read())["power"] == 324

    def test_a_status_is_no_value(self) -> None:
        library = FakeRocmSmi()
        library.rsmi_dev_busy_percent_get = lambda *arguments: 2
        source = rocm_smi_source.source_of(library)
        assert "gpu_busy" not in values(source.read())
        assert source.failed == {"busy": 1}

    def test_without_devices_or_driver(self) -> None:
        with pytest.raises(SourceUnavailable, match="sees no GPU"):
            rocm_smi_source.source_of(FakeRocmSmi(devices=0))
        library = FakeRocmSmi()
        library.rsmi_init = lambda flags: 8
        with pytest.raises(SourceUnavailable, match="rsmi_init gives status 8"):
            rocm_smi_source.source_of(library)


class FakeNvml(SimpleNamespace):
    """NVML's Python package."""

    class NVMLError(Exception):
        pass

    __version__ = "13"
    NVML_TEMPERATURE_GPU, NVML_CLOCK_GRAPHICS, NVML_CLOCK_MEM = 0, 0, 2
    nvmlInit = nvmlShutdown = staticmethod(lambda: None)  # noqa: N815 - NVML's own names
    nvmlDeviceGetCount = staticmethod(lambda: 1)  # noqa: N815
    nvmlDeviceGetHandleByIndex = staticmethod(lambda number: number)  # noqa: N815
    nvmlDeviceGetUtilizationRates = staticmethod(lambda device: SimpleNamespace(gpu=80, memory=30))  # noqa: N815
    nvmlDeviceGetPowerUsage = staticmethod(lambda device: 250_500)  # noqa: N815
    nvmlDeviceGetEnforcedPowerLimit = staticmethod(lambda device: 400_000)  # noqa: N815
    nvmlDeviceGetTemperature = staticmethod(lambda device, sensor: 65)  # noqa: N815
    nvmlDeviceGetClockInfo = staticmethod(lambda device, kind: {0: 1410, 2: 1593}[kind])  # noqa: N815
    nvmlDeviceGetMemoryInfo = staticmethod(lambda device: SimpleNamespace(used=10**9, total=8 * 10**10))  # noqa: N815


class TestNvml:
    def test_names_and_units(self) -> None:
        assert values(nvml_source.source_of(FakeNvml()).read()) == {
            **{"gpu_busy": 80, "memory_busy": 30, "power": 250.5, "power_cap": 400, "temperature": 65},
            **{"clock_graphics": 1410, "clock_memory": 1593, "memory_used": 10**9, "memory_total": 8 * 10**10},
        }

    def test_without_driver(self) -> None:
        def fail() -> None:
            raise FakeNvml.NVMLError("Driver Not Loaded")

        with pytest.raises(SourceUnavailable, match="Driver Not Loaded"):
            nvml_source.source_of(FakeNvml(nvmlInit=fail))

    def test_first_library_that_sees_a_gpu_is_taken(self) -> None:
        def absent():
            raise SourceUnavailable("amdsmi sees no GPU")

        chosen, reason = open_gpus([absent, lambda: nvml_source.source_of(FakeNvml())])
        assert (chosen.name, reason) == ("NVML through pynvml 13", "")
        assert open_gpus([absent, absent]) == (None, "amdsmi sees no GPU; amdsmi sees no GPU")


class FakeTime:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return round(self.now * 1e9)


class TestLoop:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> FakeTime:
        clock = FakeTime()
        monkeypatch.setattr(loop, "time", clock)
        return clock

    def run(self, clock: FakeTime, reading_s: float, until_s: float, every_s: float = 1.0):
        """Sample a source that takes so long; returns the tally and the moments, in seconds since the start."""
        moments: list[float] = []

        class Slow:
            name, failed = "slow", {}

            def read(self) -> list[Reading]:
                moments.append(clock.now - 100)
                clock.now += reading_s
                return [Reading(None, "cpu_idle", 1, "%")]

            def close(self) -> None: ...

        def stopped(seconds: float) -> bool:
            clock.now = min(clock.now + seconds, max(clock.now, 100 + until_s))
            return clock.now >= 100 + until_s

        written: list[str] = []
        return sample_until(stopped, [Slow()], written.append, every_s), moments, written

    def test_moments_lie_on_a_grid_and_the_end_has_one(self, clock: FakeTime) -> None:
        tally, moments, written = self.run(clock, reading_s=0.25, until_s=3.5)
        assert moments == [1, 2, 3, 3.5]
        assert (tally.samples, tally.skipped) == (4, 0)
        # The time is that of the middle of the reading.
        assert written[0] == "101125000000,,cpu_idle,1,%\n"

    def test_a_source_that_is_slower_than_the_interval_is_asked_less_often(self, clock: FakeTime) -> None:
        tally, moments, _ = self.run(clock, reading_s=2.5, until_s=9.5)
        assert moments == [1, 4, 7, 9.5]
        assert tally.skipped == 6  # moments 2, 3, 5, 6, 8 and 9 of the grid

    def test_no_second_sample_right_after_the_last(self, clock: FakeTime) -> None:
        _, moments, _ = self.run(clock, reading_s=0.0, until_s=2.01)
        assert moments == [1, 2]

    def test_a_moment_without_values_is_no_sample(self, clock: FakeTime) -> None:
        class Silent:
            name, failed = "silent", {}

            def read(self) -> list[Reading]:
                return []

            def close(self) -> None: ...

        def stopped(seconds: float) -> bool:
            clock.now += seconds
            return clock.now > 103

        written: list[str] = []
        assert sample_until(stopped, [Silent()], written.append, 1.0).samples == 0
        assert not written


class TestLive:
    def test_what_is_sampled_can_be_read(self, tmp_path: Path) -> None:
        begin = time.monotonic()
        with sampler(tmp_path / "run", every_s=0.05) as log:
            while time.monotonic() < begin + 1:
                sum(range(1000))
            during = log.profile()
        passed = time.monotonic() - begin
        assert log.path == tmp_path / "run" / "system.csv"
        assert 3 <= log.meta["samples"] + log.meta["skipped"] <= passed / 0.05 + 1
        assert len(during.counters) < len(log.profile().counters)
        profile = log.profile()
        table = profile.counters.pivot_table(index="time_ns", columns="name", values="value", observed=True)
        assert len(table) == log.meta["samples"] == profile.meta["samples"]
        shares = table[[name for name in table if name.startswith("cpu_")]]
        assert shares.sum(axis=1).to_numpy() == pytest.approx([100] * len(shares), abs=0.1)
        assert table["process_cpu"].max() > 5
        assert table["process_memory"].median() > 1e7
        assert profile.origin.kind == "measured"
        assert profile.meta["warnings"] == [f"No GPU was sampled: {log.meta['no_gpu']}."]
        assert "amdsmi" in log.meta["no_gpu"]
        assert not profile.counters["device"].notna().any()
        assert tidyprof.read(log.path).meta["tool"] == "system monitor"
        assert json.loads(log.notes.read_text()) == log.meta
        assert tidyprof.read_system(tmp_path / "run").meta["ignored_files"] == [str(log.notes)]

    def test_gpus_of_amdsmi(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "amdsmi.py").write_text(FAKE_AMDSMI)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        with sampler(tmp_path / "log.csv", every_s=0.1) as log:
            time.sleep(0.35)
        assert log.meta["gpus"] == 2
        assert "no_gpu" not in log.meta
        table = log.profile().counters
        assert sorted(table["device"].dropna().unique()) == [0, 1]
        power = table[table["name"] == "power"]
        assert set(power["value"]) == {650.0}
        assert set(power["device"]) == {0}
        assert len(power) == log.meta["samples"]
        assert (table["name"] == "memory_total").sum() == 2
        assert log.meta["failed"]["power"] == log.meta["samples"]

    def test_a_second_run_replaces_the_first(self, tmp_path: Path) -> None:
        for _ in range(2):
            with sampler(tmp_path / "log.csv", every_s=0.05) as log:
                time.sleep(0.12)
        assert log.profile().meta["samples"] == log.meta["samples"]

    def test_log_of_a_killed_run_is_whole_and_nothing_is_left_running(self, tmp_path: Path) -> None:
        # The forked process stands for a worker of a data loader: it holds the sampler's pipes open.
        script = (
            "import os, sys, time\nfrom proflab.sampling import sampler\n"
            "with sampler(sys.argv[1], every_s=0.05) as log:\n"
            "    worker = os.fork()\n"
            "    if worker: print(log._child.pid, worker, flush=True)\n"
            "    time.sleep(60)\n"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "log.csv")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            sampling, worker = (psutil.Process(int(pid)) for pid in run.stdout.readline().split())
            time.sleep(0.5)
            run.send_signal(signal.SIGKILL)
        try:
            sampling.wait(timeout=10)
        finally:
            worker.kill()
        assert (tmp_path / "log.csv").read_text().endswith("\n")
        profile = read_system(tmp_path / "log.csv")
        assert profile.meta["samples"] >= 2
        assert "unfinished_lines" not in profile.meta
        assert json.loads((tmp_path / "log.notes.json").read_text())["samples"] == profile.meta["samples"]

    def test_a_sampler_that_was_killed_is_reported_and_the_work_goes_on(self, tmp_path: Path) -> None:
        log = sampler(tmp_path / "log.csv", 0.05)
        log.__enter__()
        time.sleep(0.3)
        log._child.kill()
        log._child.wait()
        with pytest.warns(UserWarning, match="did not reach the end"):
            log.__exit__(None, None, None)
        assert "stopped_early" in log.meta
        assert log.profile().meta["samples"] >= 2

    def test_an_error_in_the_block_ends_the_sampler_too(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), sampler(tmp_path / "log.csv") as log:
            _ = 1 / 0
        assert log._child.returncode == 0


class TestRefusals:
    @pytest.mark.parametrize("every_s", [0, -1, 0.001, float("nan"), float("inf"), "fast", 4000])
    def test_interval_that_can_not_be(self, every_s: object, tmp_path: Path) -> None:
        with pytest.raises(CourseError, match=r"every_s must be 0\.01 to 3600 seconds"):
            sampler(tmp_path, every_s=every_s)

    def test_another_kind_of_file(self, tmp_path: Path) -> None:
        with pytest.raises(CourseError, match=r"ends in \.csv"):
            sampler(tmp_path / "log.json")

    def test_folder_that_can_not_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CourseError, match="can't be made"), sampler(tmp_path / "file" / "run"):
            pytest.fail("the block must not run")

    def test_file_that_can_not_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "system.csv").mkdir()
        with pytest.raises(CourseError, match=r"can't start: .*system\.csv: can't be written"), sampler(tmp_path):
            pytest.fail("the block must not run")

    def test_where_nothing_can_be_sampled(self, tmp_path: Path, monkeypatch, capfd) -> None:
        def absent(*_: object) -> None:
            raise SourceUnavailable("psutil: /proc is not mounted")

        monkeypatch.setattr(child, "HostSource", absent)
        monkeypatch.setattr(child, "open_gpus", lambda: (None, "amdsmi is not installed"))
        monkeypatch.setattr(child, "_own_output", lambda: sys.stdout)
        assert child.main([str(tmp_path / "a.csv"), str(tmp_path / "a.json"), "0.1", "1"]) == 2
        (line,) = capfd.readouterr().out.splitlines()
        assert json.loads(line)["error"] == (
            "nothing can be sampled here: psutil: /proc is not mounted; amdsmi is not installed"
        )
        assert not (tmp_path / "a.csv").exists()
