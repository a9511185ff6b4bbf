"""Exercises of lesson 16, what the compiler made of a kernel: assembly that Triton wrote, and facts
from it.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

SIMDS, REGISTERS, WAVE_SLOTS = 4, 512, 8
OPTIONS = ("-h", "--help", "--fail-on-spill", "--json")
LDS = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}


def by_registers(limits: dict[str, int], block: int = 8) -> int:
    """Wavefronts on a SIMD for which there are registers, which are given out in blocks."""
    return min(WAVE_SLOTS, REGISTERS // (-(-limits["vgprs"] // block) * block))


def by_lds(limits: dict[str, int], target: str = "gfx950") -> float:
    """Wavefronts on a SIMD for which there is LDS."""
    return LDS[target] // limits["lds_bytes"] * limits["warps"] / SIMDS


def waves(limits: dict[str, int], target: str = "gfx950", block: int = 8) -> float:
    """Wavefronts on a SIMD for which there are registers and LDS."""
    return min(by_registers(limits, block), by_lds(limits, target))


def loop(text: str) -> str:
    """The code of the loop. Raises ValueError where there is none."""
    found = re.search(
        r"^(\.LBB\w+):[^\n]*Loop Header.*?^\s+s_cbranch\w+ \1$", text, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise ValueError("the kernel has no loop")
    return found[0]


def scratch(text: str, kind: str = "") -> int:
    """Instructions that move spilled values."""
    return len(re.findall(rf"^\s+scratch_{kind}", text, re.MULTILINE))


def spilled_in(history: pd.DataFrame, setting: str) -> str:
    """Where a setting spills, for a message."""
    row = history[history["setting"].eq(setting) & history["spilled_vgprs"].gt(0)].iloc[-1]
    return (
        f"With Triton {row['triton']} it spills {row['spilled_vgprs']} values on {row['target']}."
    )


def side(setting: str) -> int:
    """Rows of the tile."""
    return int(setting.partition("x")[0])


def best_setting(history: pd.DataFrame) -> str:
    """The largest tile that spills nowhere in the table."""
    spilled = history.groupby("setting")["spilled_vgprs"].sum()
    return max(spilled[spilled == 0].index, key=side)


def setting_problem(answer: Any, history: pd.DataFrame) -> str | None:
    """What is wrong with a setting; None if it is the best."""
    known = sorted({*history["setting"]})
    if answer not in known:
        return f"Write one of the settings as it stands in `history`: {', '.join(known)}."
    if history.loc[history["setting"].eq(answer), "spilled_vgprs"].sum():
        return spilled_in(history, answer)
    if side(answer) < side(best_setting(history)):
        return (
            "It spills nowhere in `history`. But neither does a larger tile, and its intensity is"
            " higher."
        )
    return None


def command_problem(command: Any, cache: str) -> str | None:
    """What is wrong with a command that should fail on a spill; None if nothing is."""
    if not isinstance(command, str):
        return "A command is asked, as a text."
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"The shell can't read it: {error}."
    words = words[2:] if words[:2] == ["python", "-m"] else words
    if words[:2] != ["tidyprof", "isa"]:
        return "It begins with `python -m tidyprof isa`."
    if {"|", "||", ";", "&"} & {*words}:
        return "A pipe or a second command hides the exit code of the first one."
    if cache not in words:
        return f"Which folder? It is `{cache}`."
    words = [
        next((full for full in OPTIONS if word[:2] == "--" and full.startswith(word)), word)
        for word in words
    ]
    if option := next(
        (word for word in words if word.startswith("--") and word not in OPTIONS), None
    ):
        return (
            f"There is no option `{option}`: it ends with 2 for every folder, spill or not. See"
            " `--help`."
        )
    if "--fail-on-spill" not in words:
        return (
            "It shows the spills and ends with 0: no test fails. There is an option for that, see"
            " `--help`."
        )
    return None if len(words) == 4 else "That is more than the folder and the option."


EXERCISES = (
    Exercise(
        id="16.1",
        answer=Number(waves, relative=0),
        mistakes=(
            Mistake(
                lambda limits: waves(limits, block=1),
                lambda limits: (
                    f"Registers are given out in eights: {limits['vgprs']} take more than that."
                ),
            ),
            Mistake(
                lambda limits: waves(limits, "gfx942"),
                "That is with the LDS of an MI300. The table at the beginning has that of an"
                " MI350.",
            ),
            Mistake(by_lds, "That is by LDS alone. For how many wavefronts are there registers?"),
            Mistake(
                lambda limits: waves(limits) * SIMDS,
                "That is on the whole compute unit. It has four SIMDs.",
            ),
        ),
        hints=(
            (
                "By LDS: whole workgroups, `160 * 1024 // lds_bytes`, times their warps, on four"
                " SIMDs."
            ),
            "The smaller of that and `waves_by_registers(limits['vgprs'])` counts.",
        ),
        insight=lambda limits: (
            f"The LDS has room for {by_lds(limits):g}: here the registers decide. On an MI300 the"
            " LDS would."
        ),
    ),
    Exercise(
        id="16.2",
        answer=Number(lambda text: scratch(loop(text)), relative=0),
        mistakes=(
            Mistake(scratch, "That is in the whole kernel. Most of them run once."),
            Mistake(
                lambda text: scratch(loop(text), "load"),
                "These bring values back. Others were put away.",
            ),
            Mistake(
                lambda text: int(re.search(r"\.vgpr_spill_count: +(\d+)", text)[1]),
                "That counts the spilled values of the whole kernel. One instruction moves up to"
                " four.",
            ),
        ),
        hints=(
            "`loop_of` gives the code of the loop.",
            '`re.findall(r"^\\s+scratch_", loop_of("256x256x64"), re.MULTILINE)`',
        ),
        insight=lambda text: (
            f"{scratch(text) - scratch(loop(text))} more stand outside of the loop, and run once."
        ),
    ),
    Exercise(
        id="16.3",
        answer=Property(setting_problem, best_setting),
        mistakes=(
            Mistake(
                lambda history: "256x256x64", lambda history: spilled_in(history, "256x256x64")
            ),
            Mistake(
                lambda history: "256x256x64_8warps",
                lambda history: spilled_in(history, "256x256x64_8warps"),
            ),
            Mistake(
                lambda history: "256x256x32", lambda history: spilled_in(history, "256x256x32")
            ),
            Mistake(lambda history: "128x128x64", "neither does a larger tile"),
            Mistake(lambda history: "256 x 256", "Write one of the settings as it stands"),
        ),
        hints=(
            "Add up `spilled_vgprs` for each `setting`, over targets and versions.",
            (
                "Of those with a sum of 0 take the largest tile: intensity depends on rows and"
                " columns alone."
            ),
        ),
        insight="Half the depth leaves the intensity as it is. With another version, look again.",
    ),
    Exercise(
        id="16.4",
        answer=Property(
            command_problem, lambda cache: f"python -m tidyprof isa {cache} --fail-on-spill"
        ),
        mistakes=(
            Mistake(lambda cache: f"python -m tidyprof isa {cache}", "ends with 0"),
            Mistake(
                lambda cache: f"python -m tidyprof isa {cache} --fail-on-spills",
                "no option `--fail-on-spills`",
            ),
            Mistake(lambda cache: f"python -m tidyprof isa {cache} --json -", "ends with 0"),
            Mistake(
                lambda cache: f"python -m tidyprof isa {cache} --fail-on-spill | tail",
                "hides the exit code",
            ),
            Mistake(lambda cache: "python -m tidyprof isa --fail-on-spill", "Which folder?"),
            Mistake(
                lambda cache: f"python -m tidyprof gate {cache} --fail-on-spill", "It begins with"
            ),
        ),
        hints=(
            "`python -m tidyprof isa --help` lists the options.",
            "The folder, then the option that makes it fail.",
        ),
        insight="Exit code 1 is a spill, 2 is a wrong path: a test should fail on both.",
    ),
)
