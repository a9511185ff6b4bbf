"""Exercises of lesson 07: file names of ranks, a straggler without a healthy run, and more GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import tidyprof
from proflab.exercises.answers import Number, Property
from proflab.exercises.model import Exercise, Mistake
from proflab.tapes.names import Process, expand

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

RANKS = 4

STEPS = 3
"""Number of steps in AMD's trace."""


def written_names(
    pattern: str, launcher: pd.Series, pids: tuple[int, ...], same_host: bool = True
) -> list[str]:
    """Return the file name that a pattern gives on each rank of two nodes. A row of launchers.csv
    states which variables a rank has.
    """
    inherited = dict([launcher["inherited"].split("=")] if launcher["inherited"] else [])
    names = []
    for rank, pid in enumerate(pids):
        node, local = divmod(rank, len(pids) // 2)
        own = {
            launcher["local_rank"]: str(local),
            launcher["size"]: str(len(pids)),
            launcher["rank"]: str(rank),
        }
        host = "node0" if same_host else f"node{node}"
        names.append(expand(pattern, Process(host, pid, ["python"], inherited | own)))
    return names


def naming_problem(pattern: object, launcher: pd.Series) -> str | None:
    """Return the problem of a pattern for `--output-file`, or None if each rank has its own file
    and its rank in the name.
    """
    if not isinstance(pattern, str) or not pattern.strip():
        return "Your answer isn't a file name pattern. Write a string such as `rank%rank%_%pid%`."
    if "%q{" in pattern or "$" in pattern:
        return (
            "You used a placeholder of another tool or of the shell. Use `rocprofv3` placeholders,"
            " which are between percent signs."
        )
    # With equal process IDs and node names everywhere, only the rank can make the names differ.
    if len(set(written_names(pattern, launcher, (41250,) * RANKS))) == RANKS:
        return None
    names = written_names(pattern, launcher, (41250, 41257) * 2, same_host=False)
    return f"{why_alike(pattern, launcher)} {what_is_left(names)}"


def why_alike(pattern: str, launcher: pd.Series) -> str:
    """Return why a pattern doesn't distinguish the ranks of this launcher."""
    used = re.findall(r"%env\{(\w*)\}%", pattern)
    if launcher["local_rank"] in used:
        return f"`{launcher['local_rank']}` starts again at 0 on each node."
    if launcher["size"] in used:
        return f"`{launcher['size']}` is the total number of ranks, which is the same on each rank."
    unset = [name for name in used if not launcher["inherited"].startswith(f"{name}=")]
    if unset:
        return f"This launcher doesn't set `{unset[0]}`, so the tool replaces it with nothing."
    if used or re.search("%(rank|nid)%", pattern):
        return (
            "`%rank%` checks Slurm's variable first, and each rank inherits"
            f" {launcher['inherited']} from the job script."
        )
    return "Your file name doesn't contain the rank."


def what_is_left(names: list[str]) -> str:
    """Return a sentence on the files that these names leave."""
    different = len(set(names))
    if different == 1:
        return f"All {len(names)} ranks write `{names[0]}`, and the last one replaces the others."
    if different < len(names):
        return (
            "Process IDs differ on one node, but two nodes can use the same IDs. In that case,"
            f" only {different} files remain."
        )
    return "The files stay separate, but nothing shows which rank wrote them."


def lateness_ms(profile: Profile, steps: int, each: str = "mean") -> pd.DataFrame:
    """Return how late each rank (column) starts the collectives of a step (row), in ms after the
    median rank.
    """
    starts = tidyprof.collectives(profile).pivot(index="number", columns="rank", values="start_ns")
    late = starts.sub(starts.median(axis=1), axis=0) / 1e6
    return late.groupby(starts.index // (len(starts) // steps)).agg(each)


def per_step_ms(profile: Profile) -> float:
    """Return the smallest difference in one step between the latest rank and the next, in ms."""
    late = lateness_ms(profile, STEPS)
    suspect = late.median().idxmax()
    return float((late[suspect] - late.drop(columns=suspect).max(axis=1)).min())


def margin_ms(
    profile: Profile, least: str = "min", worst: str = "max", each: str = "mean", alone: bool = True
) -> float:
    """Return the `least` lateness of the latest rank minus the `worst` of all others, in ms."""
    late = lateness_ms(profile, STEPS, each)
    suspect = late.median().idxmax()
    others = late.drop(columns=suspect) if alone else late
    return float(late[suspect].agg(least) - others.stack().agg(worst))


def gain(
    scaling: pd.DataFrame, before: tuple[int, int] = (1, 1024), after: tuple[int, int] = (4, 256)
) -> float:
    """Return the ratio of two runs' images/s; each run is (GPUs, images on each)."""
    rates = scaling.set_index(["gpus", "batch"])["rate_per_gpu"]
    return float(after[0] * rates[after] / (before[0] * rates[before]))


EXERCISES = (
    Exercise(
        id="07.1",
        answer=Property(
            naming_problem, lambda launcher: f"rank%env{{{launcher['rank']}}}%_pid%pid%"
        ),
        mistakes=(
            Mistake(lambda launcher: "rank%rank%", "`%rank%` checks Slurm's variable first"),
            Mistake(lambda launcher: "rank%env{RANK}%_%pid%", "This launcher doesn't set `RANK`"),
            Mistake(
                lambda launcher: "rank%env{OMPI_COMM_WORLD_LOCAL_RANK}%_%pid%",
                "starts again at 0 on each node",
            ),
            Mistake(lambda launcher: "%hostname%_%pid%", "nothing shows which rank wrote them"),
            Mistake(lambda launcher: "rank$RANK", "a placeholder of another tool"),
        ),
        hints=(
            "Look at the table above. It names the variable that this launcher sets.",
            "Don't use `%rank%`: it reads Slurm's variable, which is 0 for every rank here.",
            "Write `%env{NAME}%` with the name of the variable, which starts with"
            " `OMPI_COMM_WORLD_`.",
        ),
        insight=(
            "Keep `%pid%` as well, because a rank may start more processes. Count the files after"
            " every run."
        ),
    ),
    Exercise(
        id="07.2",
        answer=Number(margin_ms, unit="ms", relative=0.002),
        mistakes=(
            Mistake(
                lambda run: margin_ms(run, least="median"),
                (
                    "You used the suspect's median step. The rule covers *each* step, so use the"
                    " suspect's smallest lateness."
                ),
            ),
            Mistake(
                lambda run: margin_ms(run, least="max"),
                "You used the suspect's largest lateness. Use its smallest lateness.",
            ),
            Mistake(
                lambda run: margin_ms(run, alone=False),
                "You compared the suspect with itself. Drop its column before you take the maximum.",
            ),
            Mistake(
                lambda run: margin_ms(run, worst="median"),
                (
                    "You used the median lateness of the other ranks. Use the largest value of any"
                    " of these ranks."
                ),
            ),
            Mistake(
                lambda run: margin_ms(run, least="max", worst="median"),
                (
                    "You used the suspect's largest lateness and the median of the others. Use the"
                    " suspect's smallest lateness and the largest lateness of the others."
                ),
            ),
            *(
                Mistake(
                    lambda run, step=step: float(lateness_ms(run, STEPS).max(axis=1).agg(step)),
                    "You computed only how late the suspect is. Subtract the largest lateness of"
                    " the others.",
                )
                for step in ("min", "median", "max")
            ),
            Mistake(
                per_step_ms,
                (
                    "You compared ranks step by step, but the rule is stricter. Compare with the"
                    " largest lateness in *all* steps, which is a single number"
                    " (`max(axis=None)`)."
                ),
            ),
            Mistake(
                lambda run: margin_ms(run, each="max"),
                (
                    "You used individual collectives. Average the lateness over the collectives in"
                    " a step."
                ),
            ),
        ),
        hints=(
            "With `.median().idxmax()`, find the suspect (the column with the largest median).",
            "With `[suspect].min()`, find the suspect's smallest lateness.",
            "Subtract the largest value of the others, `.drop(columns=suspect).max(axis=None)`.",
        ),
        insight=lambda run: (
            "According to the strict rule, the suspect is a straggler because even in its best"
            f" step, it is {lateness_ms(run, STEPS).max(axis=1).min():.1f} ms late."
            f" {tidyprof.ranks(run).attrs['evidence']}"
        ),
    ),
    Exercise(
        id="07.3",
        answer=Number(gain, unit="times"),
        mistakes=(
            Mistake(
                lambda scaling: gain(scaling, before=(1, 256)),
                (
                    "You compared with a single GPU that processes 256 images per step and often"
                    " waits. The example run has 1,024 images per step on its GPU."
                ),
            ),
            Mistake(
                lambda scaling: gain(scaling, after=(4, 1024)),
                "You used four GPUs with 1,024 images each, so a step has 4,096 images. Use the row"
                " that keeps 1,024 images per step.",
            ),
            Mistake(
                lambda scaling: gain(scaling) / 4,
                "You compared rates per GPU. Multiply each rate by the number of GPUs.",
            ),
            Mistake(
                lambda scaling: 4,
                "You assumed that four GPUs are four times as fast. Use the rates in the table.",
            ),
        ),
        hints=(
            "Find the rows for the example run and for four GPUs with 1,024 images per step.",
            "Multiply each rate by the number of GPUs, then divide the new total by the old total.",
        ),
        insight=lambda scaling: (
            f"In the modeled runs, four GPUs gain {'nothing' if gain(scaling) < 1.05 else 'little'}"
            " because each GPU has a quarter of the images but as many launches as before. Measure"
            " the gain on your own GPUs."
        ),
    ),
)
