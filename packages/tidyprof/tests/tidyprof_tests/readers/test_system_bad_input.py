"""Logs that are none, or damaged: one line that says what was found, never another exception."""

from __future__ import annotations

import json

import pytest

from tidyprof.readers.system.reader import read_system
from tidyprof_tests.damage import refusal
from tidyprof_tests.readers.test_system import IDLE, MONITOR, OMNISTAT, STRESS, metric_entry, write

GOOD = ("timestamp,gpu,power_w,gpu_use_percent", "1754585903,0,100,50", "1754585904,0,110,60")


def replaced(lines: tuple[str, ...], old: str, new: str) -> str:
    text = "\n".join(lines) + "\n"
    assert old in text
    return text.replace(old, new)


BAD = {
    "no complete line": "timestamp,gpu,power_w",
    "only a header": "timestamp,gpu,power_w\n",
    "another tool's CSV": "Kind,Agent_Id,Queue_Id\nKERNEL,1,2\n",
    "prose": "the GPU was busy\nall the time\n",
    "a header without quantities": "timestamp,gpu,name\n1754585903,0,x\n",
    "a row too long": replaced(GOOD, ",50\n", ",50,9\n"),
    "a row with a line end of its own": replaced(GOOD, ",110,60", ',1\r10,"60"'),
    "a line end in a cell": replaced(GOOD, ",110,60", ",1\r10,60"),
    "a column twice": replaced(GOOD, "gpu_use_percent", "power_w"),
    "times from the start": replaced(GOOD, "175458590", ""),
    "times in two units": replaced(GOOD, "1754585904", "1754585904000"),
    "text for a time": replaced(GOOD, "1754585904", "soon"),
    "no time": replaced(GOOD, "1754585904", ""),
    "a negative time": replaced(GOOD, "1754585904", "-5"),
    "an infinite time": replaced(GOOD, "1754585904", "inf"),
    "a device without a number": replaced(GOOD, "3,0,", "3,0000:83:00.0,"),
    "a device beyond numbers": replaced(GOOD, "3,0,", "3,99999999999,"),
    "power in microwatts": replaced(GOOD, ",100,", ",100000000,"),
    "temperatures in millidegrees": "timestamp,gpu,temp_edge\n1754585903,0,45000\n",
    "a share above 100": replaced(GOOD, ",50\n", ",5000\n"),
    "negative power": replaced(GOOD, ",100,", ",-5,"),
    "a unit that cannot be": replaced(GOOD, ",100,", ",100 C,"),
    "words for numbers": replaced(GOOD, ",100,", ",much,"),
    "infinite values": replaced(GOOD, ",100,", ",inf,"),
    "huge values": replaced(GOOD, ",100,", ",1e99,"),
    "only N/A": replaced(GOOD, ",100,50", ",N/A,N/A").replace("110,60", "N/A,N/A"),
    "omnistat without times": "\n".join(OMNISTAT[:3]) + "\n",
    "half a JSON": json.dumps([metric_entry(1769014607)])[:-30],
    "a JSON nested too deep": '[{"gpu": 0, "power": ' + "[" * 100_000,
    "a JSON of something else": '{"epochs": 5}',
    "a list of numbers": "[1, 2, 3]",
    "a JSON without sensors": '[{"gpu": 0, "asic": {"market_name": "MI300X"}}]',
    "JSON with and without times": json.dumps([metric_entry(1769014607), metric_entry(None, 1)]),
    "JSON with times of nowhere": json.dumps([metric_entry(5)]),
    "JSON with power in celsius": json.dumps([metric_entry(1769014607)]).replace('"W"', '"C"'),
    "JSON with infinite power": json.dumps([metric_entry(1769014607)]).replace("542", "Infinity"),
    "JSON with endless numbers": json.dumps([metric_entry(1769014607)]).replace("542", "9" * 5000),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_content(tmp_path, what):
    content = BAD[what]
    path = tmp_path / "log.csv"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    refusal(path, read_system)


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
    assert f"8 {lost}" in refusal(write(tmp_path / "log.csv", *several), read_system)


SOURCES = {
    "monitor": "\n".join([MONITOR, STRESS, IDLE] * 3) + "\n",
    "metric": json.dumps([metric_entry(1769014607 + i) for i in range(3)], indent=1),
    "omnistat": "\n".join(OMNISTAT) + "\n",
    "own header": "\n".join(GOOD) + "\n",
    "dates": "time,gpu,power_w\n2025-08-07 16:58:23.25,0,100\n2025-08-07T18:58:23+02:00,1,7\n",
}
