"""The system monitor reader against a real recording with known figures, and against written
logs.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from tidyprof import Profile, ProfileReadError
from tidyprof.readers.system.names import meaning
from tidyprof.readers.system.reader import read_system
from tidyprof_tests.readers.kit import samples

RECORDING = "smi-mi300x-vllm-llama31-bs1"
FILES = ("cpu", "gpu_power", "gpu_temp", "gpu_usage", "memory")


@pytest.fixture(scope="session")
def truth(manifest: dict[str, dict]) -> dict:
    return manifest[RECORDING]["truth"]


@pytest.fixture(scope="session")
def logs(recordings: Path) -> dict[str, Path]:
    folder = recordings / RECORDING / "monitoring"
    return {name: next(folder.glob(f"{name}_Llama*.csv")) for name in FILES}


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def units(profile: Profile) -> dict[str, str]:
    table = profile.counters.drop_duplicates("name")
    return dict(zip(table["name"].astype(str), table["unit"].astype(object), strict=True))


# Recording


@pytest.mark.parametrize("name", FILES)
def test_rows_and_times_of_the_recording(name, truth, logs):
    profile, expected = read_system(logs[name]), truth[name]
    assert profile.meta["rows"] == expected["rows"]
    assert profile.meta["empty_rows"] == expected["rows_with_blank_device"]
    assert profile.meta["samples"] == expected["samples"]
    times = profile.counters["time_ns"]
    assert (times.min(), times.max()) == (
        expected["first_timestamp"] * 10**9,
        expected["last_timestamp"] * 10**9,
    )
    assert len(profile.meta["devices"]) == expected.get("devices", 0)
    assert profile.meta["repairs"] == {}
    assert profile.meta["interval_s"] == 5


COLUMNS = {
    ("gpu_power", "power_watts"): "power",
    ("gpu_power", "power_cap_watts"): "power_cap",
    ("gpu_temp", "temp_edge_celsius"): "temperature_edge",
    ("gpu_temp", "temp_junction_celsius"): "temperature_junction",
    ("gpu_usage", "gpu_use_percent"): "gpu_busy",
    ("gpu_usage", "gfx_activity"): "gpu_activity_counter",
    ("gpu_usage", "vram_total_bytes"): "memory_total",
    ("gpu_usage", "vram_used_bytes"): "memory_used",
    ("memory", "total_gb"): "host_memory_total",
    ("memory", "usage_percent"): "host_memory_usage",
    ("cpu", "cpu_user_percent"): "cpu_user",
}


@pytest.mark.parametrize(("log", "column"), COLUMNS)
def test_values_of_the_recording(log, column, logs):
    raw = pd.read_csv(logs[log]).dropna(subset=[column])
    profile = read_system(logs[log])
    found = profile.counters[profile.counters["name"] == COLUMNS[log, column]]
    assert found["value"].tolist() == raw[column].tolist()
    assert found["time_ns"].tolist() == (raw["timestamp"] * 10**9).tolist()
    if "device" in raw:
        assert ("card" + found["device"].astype(str)).tolist() == raw["device"].tolist()


def test_units_and_doubts_of_the_recording(logs, truth):
    power = read_system(logs["gpu_power"])
    assert power.meta["missing"] == {"power_cap": truth["gpu_power"]["rows_missing_power_cap"]}
    assert power.meta["warnings"] == []
    (warning,) = read_system(logs["gpu_temp"]).meta["warnings"]
    assert "edge is warmer than the junction" in warning
    assert units(read_system(logs["gpu_usage"]))["gpu_activity_counter"] == "count"
    memory = units(read_system(logs["memory"]))
    assert memory["host_memory_total"] == "GB", "nobody knows whether by 2^30 or 10^9"
    assert memory["host_memory_usage"] == "%"


# Written logs


def test_what_a_log_says_about_itself(tmp_path):
    def meta(name: str) -> dict:
        return read_system(samples()[f"system-{name}"].write(tmp_path / name)).meta

    assert meta("amd_smi_monitor")["missing"] == {"power": 2, "encoder_busy": 4}
    assert meta("omnistat")["interval_s"] == 1.5
    assert "without a time" in meta("rocm_smi")["warnings"][0]
    assert "both mean power" in meta("two_columns_of_one_quantity")["warnings"][0]


# Times


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1754585903", 1754585903 * 10**9),
        ("1754585903.123456789", 1754585903123456789),
        ("1754585903123", 1754585903123 * 10**6),
        ("1754585903123456", 1754585903123456 * 10**3),
        ("1754585903123456789", 1754585903123456789),
        ("2025-08-07T16:58:23Z", 1754585903 * 10**9),
        ("2025-08-07T18:58:23+02:00", 1754585903 * 10**9),
        ("2025-08-07 16:58:23.25", 1754585903250 * 10**6),
    ],
)
def test_units_of_time(tmp_path, text, nanoseconds):
    profile = read_system(write(tmp_path / "a.csv", "timestamp,gpu,power_w", f"{text},0,100"))
    assert profile.counters["time_ns"].tolist() == [nanoseconds]


def test_local_times_need_their_zone(tmp_path):
    path = write(tmp_path / "a.csv", "time,gpu,power_w", "2025-08-07 18:58:23,0,100")
    assumed = read_system(path)
    assert "read as UTC" in assumed.meta["warnings"][0]
    profile = read_system(path, time_zone="Europe/Berlin")
    assert profile.counters["time_ns"].tolist() == [1754585903 * 10**9]
    assert profile.meta["warnings"] == []
    assert profile.meta["time_zone"] == "Europe/Berlin"
    twice = write(tmp_path / "b.csv", "time,gpu,power_w", "2025-10-26 02:30:00,0,100")
    with pytest.raises(ProfileReadError, match=r"2025-10-26 02:30:00.* Europe/Berlin"):
        read_system(twice, time_zone="Europe/Berlin")
    with pytest.raises(ProfileReadError, match="'Mars'"):
        read_system(path, time_zone="Mars")


# Names


@pytest.mark.parametrize(
    ("header", "name", "unit", "factor"),
    [
        ("power_watts", "power", "W", 1),
        ("Average Graphics Package Power (W)", "power", "W", 1),
        ("rocm_average_socket_power_watts", "power", "W", 1),
        ("power_mw", "power", "W", 1e-3),
        ("Max Graphics Package Power (W)", "power_cap", "W", 1),
        ("temp_junction_celsius", "temperature_junction", "°C", 1),
        ("hotspot", "temperature_junction", "°C", 1),
        ("Temperature (Sensor memory) (C)", "temperature_memory", "°C", 1),
        ("GPU use (%)", "gpu_busy", "%", 1),
        ("GPU Memory Read/Write Activity (%)", "memory_busy", "%", 1),
        ("vram_used_mib", "memory_used", "bytes", 2**20),
        ("VRAM Total Memory (B)", "memory_total", "bytes", 1),
        ("rocm_vram_used_percentage", "memory_used_percent", "%", 1),
        ("sclk clock speed:", "clock_graphics", "MHz", 1),
        ("rocm_mclk_clock_mhz", "clock_memory", "MHz", 1),
        ("Voltage (mV)", "voltage", "mV", 1),
        ("fan_speed", "fan_speed", None, 1),
    ],
)
def test_names_and_units_of_columns(header, name, unit, factor):
    found = meaning(header)
    assert (found.name, found.unit, found.factor) == (name, unit, factor)


@pytest.mark.parametrize(
    "header", ["GPU ID", "Node ID", "uuid", "power (C)", "temp_edge_watts", "()", ""]
)
def test_columns_that_are_no_quantity(header):
    assert meaning(header) is None


def test_the_folder_of_the_recording(truth, logs, tmp_path):
    profile = tidyprof.read(next(iter(logs.values())).parent)
    assert profile.meta["rows"] == sum(truth[name]["rows"] for name in FILES)
    assert len(profile.meta["files"]) == 5
    assert profile.meta["devices"] == list(range(8))
    parts = [read_system(path).counters for path in logs.values()]
    assert len(profile.counters) == sum(map(len, parts))
    assert profile.counters["time_ns"].is_monotonic_increasing


# Damage


USAGE = [
    "timestamp,device,gpu_use_percent,vram_total_bytes,vram_used_bytes",
    *(
        f"{1754585903 + second},card0,{second % 100},206141652992,{297771008 + second}"
        for second in range(200)
    ),
]
LOST = "from incomplete rows"


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda line: line.replace(",", ";"), LOST),
        (lambda line: line[:20] + "\0" * len(line[20:]), LOST),
        (lambda line: line[:20], LOST),
        (
            lambda line: line.replace("206141652992", "2061206141652992"),
            "memory_total beyond 0 to 4.39805e+12 bytes",
        ),
    ],
    ids=["another separator", "zeros", "cut short", "two rows in one"],
)
def test_a_row_that_does_not_parse_is_told(tmp_path, change, lost):
    damaged = [*USAGE[:100], change(USAGE[100]), *USAGE[101:]]
    profile = read_system(write(tmp_path / "log.csv", *damaged))
    assert profile.meta["repairs"] == {lost: 1}
    assert len(profile.counters) == 3 * 200 - (3 if lost == LOST else 1)
    several = [*USAGE[:100], *map(change, USAGE[100:108]), *USAGE[108:]]
    profile = read_system(write(tmp_path / "log.csv", *several))
    assert profile.meta["repairs"] == {lost: 8}
    assert f"8 {lost}" in profile.meta["warnings"][-1]
