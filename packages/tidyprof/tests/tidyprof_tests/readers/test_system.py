"""The system monitor reader against a real recording with known figures, and against written
logs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidyprof
from tidyprof import Profile, ProfileReadError
from tidyprof.readers.system.names import QUANTITIES, meaning
from tidyprof.readers.system.reader import read_system

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


def values(profile: Profile, name: str, device: int | None = 0) -> list[float]:
    table = profile.counters[profile.counters["name"] == name]
    own = table["device"].isna() if device is None else table["device"] == device
    return table.loc[own.fillna(False).astype(bool), "value"].tolist()


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


def test_power_of_the_recording(truth, logs):
    profile, expected = read_system(logs["gpu_power"]), truth["gpu_power"]
    power = (
        profile.counters[profile.counters["name"] == "power"]
        .groupby("device")["value"]
        .agg(["mean", "max"])
    )
    highest = expected["highest_power_device"]
    assert f"card{power['mean'].idxmax()}" == highest["device"]
    assert round(power["mean"].max(), 4) == highest["mean_w"]
    assert power["max"].max() == highest["max_w"]
    assert profile.meta["missing"] == {"power_cap": expected["rows_missing_power_cap"]}


def test_temperatures_of_the_recording_and_their_doubtful_labels(truth, logs):
    profile, expected = read_system(logs["gpu_temp"]), truth["gpu_temp"]
    highest = profile.counters.groupby("name", observed=True)["value"].max()
    assert highest["temperature_junction"] == expected["max_junction_c"]
    assert highest["temperature_edge"] == expected["max_edge_c"]
    (warning,) = profile.meta["warnings"]
    assert "edge is warmer than the junction" in warning
    assert read_system(logs["gpu_power"]).meta["warnings"] == []


def test_use_of_the_recording(truth, logs):
    profile, expected = read_system(logs["gpu_usage"]), truth["gpu_usage"]["busiest_device"]
    busy = profile.counters[profile.counters["name"] == "gpu_busy"]
    means = busy.groupby("device")["value"].mean()
    assert f"card{means.idxmax()}" == expected["device"]
    assert round(means.max(), 4) == expected["mean_use_percent"]
    busiest = busy[busy["device"] == means.idxmax()]
    assert (busiest["value"] == 100).sum() == expected["samples_at_100"]
    assert max(values(profile, "memory_used", means.idxmax())) == expected["max_vram_used_bytes"]
    assert units(profile)["gpu_activity_counter"] == "count", "a running counter is no share"
    assert set(values(profile, "memory_total")) == {206141652992}


# amd-smi

MONITOR = (
    "timestamp,gpu,xcp,power_usage,hotspot_temperature,memory_temperature,gfx_clk,gfx,mem,encoder,"
    "vram_used,vram_total"
)
STRESS = "1753969973,0,0,750,69,50,1278,100,1,N/A,2.0,192.0"
IDLE = "1753969973,1,0,N/A,32,33,114,0,0,N/A,0.3,192.0"


def test_amd_smi_monitor_in_watch_mode(tmp_path):
    later = (STRESS.replace("973", "974", 1), IDLE.replace("973", "974", 1))
    watch = "'CTRL' + 'C' to stop watching output:"
    profile = read_system(
        write(tmp_path / "smi.csv", watch, MONITOR, STRESS, IDLE, MONITOR, *later)
    )
    assert profile.meta["samples"] == 2
    assert values(profile, "power") == [750, 750]
    assert values(profile, "power", 1) == []
    assert values(profile, "clock_graphics") == [1278, 1278]
    assert values(profile, "temperature_junction", 1) == [32, 32]
    assert values(profile, "memory_used") == [2 * 2**30] * 2, "the default view counts in GB"
    assert profile.meta["missing"] == {"power": 2, "encoder_busy": 4}
    assert profile.counters["partition"].tolist() == [0] * len(profile.counters)
    assert profile.counters["time_ns"].unique().tolist() == [1753969973 * 10**9, 1753969974 * 10**9]


@pytest.mark.parametrize(
    ("used", "total", "factor"),
    [("283", "196300", 2**20), ("2.0", "192.0", 2**30), ("297771008", "206141652992", 1)],
)
def test_unstated_memory_units_follow_from_the_total(tmp_path, used, total, factor):
    lines = ("timestamp,gpu,vram_used,vram_total", f"1753969973,0,{used},{total}")
    assert values(read_system(write(tmp_path / "a.csv", *lines)), "memory_used") == [
        float(used) * factor
    ]


def test_older_columns_of_amd_smi(tmp_path):
    lines = (
        "timestamp,gpu,power_usage,hotspot_temperature,memory_temperature,gfx,gfx_clock,mem,"
        "mem_clock,vram_used,vram_total",
        "1753969973,0,171,32,33,0,114,0,900,283,196300",
    )
    profile = read_system(write(tmp_path / "a.csv", *lines))
    assert {
        name: values(profile, name)[0]
        for name in ("gpu_busy", "clock_graphics", "memory_busy", "clock_memory")
    } == {
        "gpu_busy": 0,
        "clock_graphics": 114,
        "memory_busy": 0,
        "clock_memory": 900,
    }


METRIC = (
    "timestamp,gpu,gfx_activity,umc_activity,mm_activity,socket_power,gfx_0_clk,mem_0_clk,edge,"
    "hotspot,mem"
)


def test_mem_is_a_temperature_in_amd_smi_metric(tmp_path):
    profile = read_system(
        write(tmp_path / "a.csv", METRIC, "1786553852,0,97,3,N/A,980,2390,2000,N/A,56,41")
    )
    found = {
        name: values(profile, name)
        for name in ("memory_busy", "temperature_memory", "temperature_junction")
    }
    assert found == {"memory_busy": [3], "temperature_memory": [41], "temperature_junction": [56]}
    only = read_system(
        write(tmp_path / "b.csv", "timestamp,gpu,edge,hotspot,mem", "1786553852,0,N/A,56,41")
    )
    assert values(only, "temperature_memory") == [41]


def test_two_columns_of_one_quantity_are_not_mixed(tmp_path):
    lines = (
        "timestamp,gpu,current_socket_power,average_socket_power,edge,temp_edge",
        "1786553852,0,500,400,N/A,41",
    )
    profile = read_system(write(tmp_path / "a.csv", *lines))
    assert values(profile, "power") == [500]
    assert values(profile, "average_socket_power") == [400]
    assert values(profile, "temperature_edge") == [41]
    assert len(profile.meta["warnings"]) == 1


def metric_entry(time: int | None, gpu: int = 0, busy: int = 87) -> dict:
    return ({} if time is None else {"timestamp": time}) | {
        "gpu": gpu,
        "usage": {
            "gfx_activity": {"value": busy, "unit": "%"},
            "umc_activity": {"value": 41, "unit": "%"},
            "vcn_activity": [{"value": 0, "unit": "%"}, "N/A"],
        },
        "power": {
            "socket_power": {"value": 542, "unit": "W"},
            "gfx_voltage": "N/A",
            "throttle_status": "UNTHROTTLED",
        },
        "clock": {
            "gfx_0": {"clk": {"value": 2100, "unit": "MHz"}},
            "mem_0": {"clk": {"value": 1300, "unit": "MHz"}},
        },
        "temperature": {
            "edge": "N/A",
            "hotspot": {"value": 71, "unit": "C"},
            "mem": {"value": 60, "unit": "C"},
        },
        "mem_usage": {
            "total_vram": {"value": 196592, "unit": "MB"},
            "used_vram": {"value": 121344, "unit": "MB"},
        },
    }


@pytest.mark.parametrize("wrapped", [False, True], ids=["list", "gpu_data"])
def test_amd_smi_metric(tmp_path, wrapped):
    entries = [metric_entry(1769014607, gpu) for gpu in (0, 1)]
    path = tmp_path / "metric.json"
    path.write_text(json.dumps({"gpu_data": entries} if wrapped else entries, indent=4))
    profile = tidyprof.read(path)
    expected = {
        "gpu_busy": 87,
        "memory_busy": 41,
        "power": 542,
        "clock_graphics": 2100,
        "clock_memory": 1300,
        "temperature_junction": 71,
        "temperature_memory": 60,
        "memory_used": 121344 * 2**20,
        "memory_total": 196592 * 2**20,
    }
    assert {name: values(profile, name, 1) for name in expected} == {
        name: [v] for name, v in expected.items()
    }
    assert all(units(profile)[name] == QUANTITIES[name][0] for name in expected)
    assert profile.meta["missing"]["temperature_edge"] == 2
    assert profile.meta["devices"] == [0, 1]


def test_amd_smi_json_in_watch_mode_is_one_document_per_sample(tmp_path):
    path = tmp_path / "watch.json"
    samples = "\n".join(
        json.dumps([metric_entry(1769014607 + i, busy=i)], indent=4) for i in range(3)
    )
    path.write_text(f"'CTRL' + 'C' to stop watching output:\n{samples}\n")
    profile = tidyprof.read(path)
    assert values(profile, "gpu_busy") == [0, 1, 2]
    assert profile.meta["samples"] == 3


def test_amd_smi_monitor_as_json(tmp_path):
    entry = {
        "gpu": 0,
        "power_usage": {"value": 245, "unit": "W"},
        "gfx": {"value": 98, "unit": "%"},
        "xcp": 0,
    }
    entry |= {
        "vram_used": {"value": 1.5, "unit": "GB"},
        "mem": {"value": 3, "unit": "%"},
        "gfx_clk": "N/A",
    }
    path = tmp_path / "monitor.json"
    for keys in (str.lower, str.upper):  # small letters in all of them since ROCm 7.14 only
        path.write_text(
            json.dumps({keys("gpu_data"): [{keys(name): value for name, value in entry.items()}]})
        )
        profile = read_system(path)
        names = ("power", "gpu_busy", "memory_busy", "memory_used")
        assert [values(profile, name) for name in names] == [[245], [98], [3], [1.5 * 2**30]]


# rocm-smi


def test_rocm_smi_csv(tmp_path):
    lines = (
        "WARNING: AMD GPU device(s) is/are in a low-power state.",
        "",
        (
            "device,GPU use (%),GFX Activity,GPU Memory Allocated (VRAM%),Current Socket Graphics"
            " Package Power (W),Temperature (Sensor edge) (C),Temperature (Sensor junction)"
            " (C),sclk clock speed:,Card Series,VRAM Total Memory (B),VRAM Total Used Memory (B)"
        ),
        "card0,5,203885505,1,152.0,45.0,51.0,(131Mhz),AMD Instinct MI300X,206141652992,297771008,",
        "card1,0,203885505,0,N/A,43.0,50.0,(2100Mhz),AMD Instinct MI300X,206141652992,297771008,",
    )
    profile = tidyprof.read(write(tmp_path / "rocm.csv", *lines))
    assert values(profile, "gpu_busy") == [5]
    assert values(profile, "clock_graphics", 1) == [2100]
    assert values(profile, "memory_used_percent") == [1]
    assert values(profile, "memory_used") == [297771008]
    assert values(profile, "temperature_edge", 1) == [43]
    assert values(profile, "gpu_activity_counter") == [203885505]
    assert profile.meta["text_columns"] == ["Card Series"]
    assert profile.meta["missing"] == {"power": 1}


def test_rocm_smi_json(tmp_path):
    card = {
        "GPU use (%)": "18",
        "Temperature (Sensor junction) (C)": "72.0",
        "Average Graphics Package Power (W)": "87.0",
        "PCI Bus": "0000:03:00.0",
        "GPU ID": "0x740c",
        "Node ID": "4",
        "mclk clock speed:": "(1600Mhz)",
        "Memory Activity": "2189510857",
    }
    path = tmp_path / "rocm.json"
    path.write_text(
        json.dumps({"card0": card, "card1": card, "system": {"Driver version": "6.2.4"}})
    )
    profile = tidyprof.read(path)
    assert profile.meta["quantities"] == [
        *("clock_memory", "gpu_busy", "memory_activity_counter", "power", "temperature_junction")
    ]
    assert values(profile, "clock_memory", 1) == [1600]


# omnistat

OMNISTAT = (
    "metric,rocm_utilization_percentage,rocm_utilization_percentage,"
    "rocm_average_socket_power_watts,omnistat_network_rx_bytes",
    "instance,node01,node02,node01,node01",
    "card,0,0,1,",
    "interface,,,,hsn0",
    "timestamp,,,,",
    "2025-01-01 10:00:00,100.0,90.0,300.5,5",
    "2025-01-01 10:00:01.500,100.0,,299,6",
)


def test_omnistat_export(tmp_path):
    profile = tidyprof.read(write(tmp_path / "omnistat-rocm.gpu.csv", *OMNISTAT))
    counters = profile.counters
    assert counters["time_ns"].unique().tolist() == [1735725600 * 10**9, 1735725601500 * 10**6]
    busy = counters[counters["name"] == "gpu_busy"]
    assert list(zip(busy["host"], busy["device"], busy["value"], strict=True)) == [
        ("node01", 0, 100),
        ("node02", 0, 90),
        ("node01", 0, 100),
    ]
    assert values(profile, "power", 1) == [300.5, 299]
    assert values(profile, "omnistat_network_rx[hsn0]", None) == [5, 6]
    assert profile.meta["time_zone"] == "UTC"
    assert profile.meta["interval_s"] == 1.5


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


def test_the_host_of_the_recording(logs):
    memory = read_system(logs["memory"])
    assert values(memory, "host_memory_total", None)[:1] == [2014.0]
    assert units(memory)["host_memory_total"] == "GB", "nobody knows whether by 2^30 or 10^9"
    assert units(memory)["host_memory_usage"] == "%"
    assert units(read_system(logs["cpu"]))["cpu_user"] == "%"


def test_the_folder_of_the_recording(truth, logs, tmp_path):
    profile = tidyprof.read(next(iter(logs.values())).parent)
    assert profile.meta["rows"] == sum(truth[name]["rows"] for name in FILES)
    assert len(profile.meta["files"]) == 5
    assert profile.meta["devices"] == list(range(8))
    parts = [read_system(path).counters for path in logs.values()]
    assert len(profile.counters) == sum(map(len, parts))
    assert profile.counters["time_ns"].is_monotonic_increasing
