"""Exercises of lesson 16: assembly that Triton wrote, and what it states about a kernel."""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

SIMDS, REGISTERS, WAVE_SLOTS = 4, 512, 8
OPTIONS = ("--help", "--json")
LDS = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}


def by_lds(limits: dict[str, int], target: str = "gfx950") -> float:
    """Return the wavefronts per SIMD for which there is LDS."""
    return LDS[target] // limits["lds_bytes"] * limits["warps"] / SIMDS


def waves(limits: dict[str, int], target: str = "gfx950", block: int = 8) -> float:
    """Return the wavefronts per SIMD, with registers that are allocated in blocks."""
    by_registers = REGISTERS // (-(-limits["vgprs"] // block) * block)
    return min(WAVE_SLOTS, by_registers, by_lds(limits, target))


def loop(text: str) -> str:
    """Return the code of the loop."""
    return text.partition("Loop Header")[2].partition("s_cbranch")[0]


def scratch(text: str, kind: str = "") -> int:
    """Return the number of instructions that move spilled values."""
    return len(re.findall(rf"^\s+scratch_{kind}", text, re.MULTILINE))


def side(setting: str) -> int:
    """Return the number of rows of the tile."""
    return int(setting.partition("x")[0])


def best_setting(history: pd.DataFrame) -> str:
    """Return the largest tile that never spills in the table."""
    spilled = history.groupby("setting")["spilled_vgprs"].sum()
    return max(spilled[spilled == 0].index, key=side)


def setting_problem(answer: Any, history: pd.DataFrame) -> str | None:
    """Return what is wrong with a setting, or None if it is the best."""
    rows = history[history["setting"].eq(answer)]
    if rows.empty:
        known = ", ".join(sorted({*history["setting"]}))
        return f"This isn't the name of a setting. Write one of these: {known}."
    if rows["spilled_vgprs"].any():
        row = rows[rows["spilled_vgprs"] > 0].iloc[-1]
        return (
            f"This setting spills {row['spilled_vgprs']} values on {row['target']} with Triton"
            f" {row['triton']}. Choose one that never spills."
        )
    if side(answer) < side(best_setting(history)):
        return (
            "This setting never spills, but neither does a larger tile. Choose the larger tile,"
            " which has a higher intensity."
        )
    return None


def command_problem(command: Any, cache: str) -> str | None:
    """Return what is wrong with a command that should fail on a spill, or None."""
    try:
        words = [posixpath.normpath(word) for word in shlex.split(command)]
    except (AttributeError, TypeError, ValueError):
        return "The shell can't read this. Answer with the command as a string."
    if words[:2] == ["python", "-m"]:
        words = words[2:]
    # argparse also accepts the beginning of an option.
    fails = any(len(word) > 2 and "--fail-on-spill".startswith(word) for word in words)
    unknown = [word for word in words if word[:2] == "--" and word not in OPTIONS and not fails]
    problems = (
        (words[:2] != ["tidyprof", "isa"], "Start the command with `python -m tidyprof isa`."),
        ({"|", "||", ";", "&"} & {*words}, "The second command hides the exit code. Remove it."),
        (cache not in words, f"The command doesn't read the folder. Add `{cache}`."),
        (
            unknown,
            f"{' '.join(unknown)} isn't an option, so the command always fails. Run `--help`.",
        ),
        (
            not fails,
            "This command shows the spills but exits with 0, so no test fails. Find the option that"
            " changes the exit code in `--help`.",
        ),
        (len(words) != 4, "Pass only the folder and the option. Remove the other words."),
    )
    return next((reply for wrong, reply in problems if wrong), None)


EXERCISES = (
    Exercise(
        id="16.1",
        answer=Number(waves, relative=0),
        mistakes=(
            Mistake(
                lambda limits: waves(limits, block=1),
                lambda limits: (
                    f"You divided by {limits['vgprs']} registers. Registers are allocated in blocks"
                    " of eight, so round up first."
                ),
            ),
            Mistake(
                lambda limits: waves(limits, "gfx942"),
                "You used the LDS of an MI300. The drawing at the start shows the LDS of an MI350.",
            ),
            Mistake(
                by_lds,
                "You considered only the LDS limit. Also compute how many wavefronts the registers"
                " allow.",
            ),
            Mistake(
                lambda limits: waves(limits) * SIMDS,
                "You counted the wavefronts of the whole compute unit. Divide by its four SIMDs.",
            ),
        ),
        hints=(
            "Compute the limit by LDS: `160 * 1024 // lds_bytes` workgroups, times their warps,"
            " divided by four SIMDs.",
            "Take the smaller of this limit and `waves_by_registers(limits['vgprs'])`.",
        ),
        insight=lambda limits: (
            f"The LDS has room for {by_lds(limits):g} wavefronts, so the registers are the limit."
            " On an MI300, the LDS would be the limit."
        ),
    ),
    Exercise(
        id="16.2",
        answer=Number(lambda text: scratch(loop(text)), relative=0),
        mistakes=(
            Mistake(
                scratch,
                "You counted the whole kernel, but most of its spills run once. Search only `loop`.",
            ),
            Mistake(
                lambda text: scratch(loop(text), "load"),
                "You counted only the loads. Add the instructions that store values.",
            ),
            Mistake(
                lambda text: int(re.search(r"\.vgpr_spill_count: +(\d+)", text)[1]),
                "You gave the number of spilled values in the whole kernel. Count the instructions"
                " in the loop, each of which moves up to four values.",
            ),
        ),
        hints=(
            "Search the string `loop`, which contains the code of the loop.",
            'Count the matches of `re.findall(r"^\\s+scratch_", loop, re.MULTILINE)`.',
        ),
        insight=lambda text: (
            f"The other {scratch(text) - scratch(loop(text))} scratch instructions are outside the"
            " loop and run once."
        ),
    ),
    Exercise(
        id="16.3",
        answer=Property(setting_problem, best_setting),
        mistakes=(
            Mistake(lambda history: "256x256x64", "This setting spills"),
            Mistake(lambda history: "256x256x32", "This setting spills"),
            Mistake(lambda history: "128x128x64", "neither does a larger tile"),
            Mistake(lambda history: "256 x 256", "Write one of these"),
        ),
        hints=(
            "Add up `spilled_vgprs` for each `setting` over all targets and versions.",
            "From the settings with a sum of 0, take the one with the largest tile. Intensity"
            " depends only on its rows and columns.",
        ),
        insight=(
            "Halving the depth doesn't change the intensity. Check for spills again with the next"
            " Triton version."
        ),
    ),
    Exercise(
        id="16.4",
        answer=Property(
            command_problem, lambda cache: f"python -m tidyprof isa {cache} --fail-on-spill"
        ),
        mistakes=(
            Mistake(lambda cache: f"python -m tidyprof isa {cache}", "exits with 0"),
            Mistake(lambda cache: f"tidyprof isa {cache} --fail-on-spills", "isn't an option"),
            Mistake(lambda cache: f"tidyprof isa {cache} --fail-on-spill | tail", "hides"),
            Mistake(lambda cache: "tidyprof isa --fail-on-spill", "doesn't read the folder"),
            Mistake(lambda cache: f"tidyprof gate {cache} --fail-on-spill", "Start the command"),
        ),
        hints=(
            "Run `python -m tidyprof isa --help` and look for an option about the exit code.",
            "Write the folder first, then the option.",
        ),
        insight="The command exits with 1 if a kernel spills and with 2 if the path is wrong. A"
        " test should fail in both cases.",
    ),
)
