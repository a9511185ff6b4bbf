"""The exercises of lesson 07: file names of ranks, the straggler without a healthy twin, and more
GPUs.
"""

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
"""Of AMD's recording."""


def written_names(
    pattern: str, launcher: pd.Series, pids: tuple[int, ...], nodes: int = 1, one_host: bool = True
) -> list[str]:
    """What the tool makes of a pattern on each rank; a row of launchers.csv says what a rank knows.

    nodes    -- the ranks are spread over so many, in order.
    one_host -- all nodes have the same name.
    """
    inherited = dict([launcher["inherited"].split("=")] if launcher["inherited"] else [])
    each = len(pids) // nodes
    names = []
    for rank, pid in enumerate(pids):
        own = {
            launcher["local_rank"]: rank % each,
            launcher["size"]: len(pids),
            launcher["rank"]: rank,
        }
        known = inherited | {variable: str(value) for variable, value in own.items()}
        host = "node0" if one_host else f"node{rank // each}"
        names.append(expand(pattern, Process(host, pid, ["python"], known)))
    return names


def naming_problem(pattern: object, launcher: pd.Series) -> str | None:
    """What is wrong with a pattern for `--output-file`, None if each rank has a file of its own
    that tells the rank.
    """
    if not isinstance(pattern, str) or not pattern.strip():
        return "A text such as `rank%rank%_%pid%` is asked."
    if "%q{" in pattern or "$" in pattern:
        return (
            "Use the tool's own placeholders between percent signs: the shell must not replace"
            " anything."
        )
    # Two ranks on each of two nodes. With the same process number and name of the node everywhere,
    # what differs tells the rank. In truth process numbers differ within a node, and may repeat on
    # the other.
    if len(set(written_names(pattern, launcher, (41250,) * RANKS, nodes=2))) == RANKS:
        return None
    names = written_names(pattern, launcher, (41250, 41257, 41250, 41257), nodes=2, one_host=False)
    return f"{why_alike(pattern, launcher)} {what_is_left(names)}"


def why_alike(pattern: str, launcher: pd.Series) -> str:
    """Why a pattern does not tell the ranks of this launcher apart."""
    asked = re.findall(r"%env\{(\w*)\}%", pattern)
    if launcher["local_rank"] in asked:
        return (
            f"`{launcher['local_rank']}` counts anew on each node: with two nodes each number is"
            " there twice."
        )
    if launcher["size"] in asked:
        return f"`{launcher['size']}` is the number of all ranks, the same on each."
    unset = [name for name in asked if not launcher["inherited"].startswith(f"{name}=")]
    if unset:
        return f"This launcher does not set `{unset[0]}`, so there is nothing in its place."
    if asked or re.search("%(rank|nid)%", pattern):
        return (
            f"`%rank%` asks Slurm's variable first, and each rank inherits {launcher['inherited']}"
            " from the job's script: that is no rank."
        )
    return "Nothing in the name tells the rank."


def what_is_left(names: list[str]) -> str:
    """How many files there will be of so many ranks."""
    different = len(set(names))
    if different == 1:
        return f"All {len(names)} ranks write `{names[0]}`: the last one replaces the others."
    if different < len(names):
        return (
            "The process number helps on one node. Two nodes can count alike: then there are"
            f" {different} files."
        )
    return "The files stay apart, and you can't say whose they are."


def lateness_ms(profile: Profile, steps: int, each: str = "mean") -> pd.DataFrame:
    """How late each rank starts a step's collectives, in ms after the median rank: rows are steps,
    columns ranks.
    """
    starts = tidyprof.collectives(profile, per_rank=True).pivot(
        index="number", columns="rank", values="start_ns"
    )
    late = starts.sub(starts.median(axis=1), axis=0) / 1e6
    return late.groupby(starts.index // (len(starts) // steps)).agg(each)


def per_step_ms(profile: Profile) -> pd.Series:
    """The lateness of the latest rank beyond that of the latest other one, step by step, in ms."""
    late = lateness_ms(profile, STEPS)
    suspect = late.median().idxmax()
    return late[suspect] - late.drop(columns=suspect).max(axis=1)


def margin_ms(
    profile: Profile, least: str = "min", worst: str = "max", each: str = "mean", alone: bool = True
) -> float:
    """The `least` lateness of the latest rank beyond the `worst` of all others, in ms, in a run of
    STEPS steps.
    """
    late = lateness_ms(profile, STEPS, each)
    suspect = late.median().idxmax()
    others = late.drop(columns=suspect) if alone else late
    return float(late[suspect].agg(least) - others.stack().agg(worst))


def gain(
    scaling: pd.DataFrame, before: tuple[int, int] = (1, 1024), after: tuple[int, int] = (4, 256)
) -> float:
    """How many times as many images per second one run makes as another; each is (GPUs, images on
    each).
    """
    rates = scaling.set_index(["gpus", "batch"])["rate_per_gpu"]
    return float(after[0] * rates[after] / (before[0] * rates[before]))


EXERCISES = (
    Exercise(
        id="07.1",
        answer=Property(
            naming_problem, lambda launcher: f"rank%env{{{launcher['rank']}}}%_pid%pid%"
        ),
        mistakes=(
            Mistake(lambda launcher: "rank%rank%", "`%rank%` asks Slurm's variable first"),
            Mistake(lambda launcher: "rank%rank%_%pid%", "Two nodes can count alike"),
            Mistake(lambda launcher: "rank%env{RANK}%_%pid%", "This launcher does not set `RANK`"),
            Mistake(
                lambda launcher: "rank%env{OMPI_COMM_WORLD_LOCAL_RANK}%_%pid%",
                "counts anew on each node",
            ),
            Mistake(lambda launcher: "%hostname%_%pid%", "you can't say whose they are"),
            Mistake(lambda launcher: "rank$RANK", "must not replace anything"),
        ),
        hints=(
            "The row of this launcher names what it sets, and what its ranks inherit from the job.",
            (
                "`%rank%` looks at Slurm's variable first. The job script has it, with the value 0,"
                " and what mpirun starts inherits it."
            ),
            "`%env{NAME}%` takes any variable; Open MPI's begin with `OMPI_COMM_WORLD_`.",
        ),
        insight=(
            "Keep `%pid%` too: a rank may start further processes. And count the files after every"
            " run."
        ),
    ),
    Exercise(
        id="07.2",
        answer=Number(margin_ms, unit="ms", relative=0.002),
        mistakes=(
            Mistake(
                lambda run: margin_ms(run, least="median"),
                "That is its typical step. The rule asks for *each*: take its least late one.",
            ),
            Mistake(
                lambda run: margin_ms(run, least="max"),
                "That is its worst step. Take its least late one.",
            ),
            Mistake(
                lambda run: margin_ms(run, alone=False),
                "The suspect's own worst step is in the comparison: drop its column first.",
            ),
            Mistake(
                lambda run: margin_ms(run, worst="median"),
                "That is what the others do typically. Take the worst step of any of them.",
            ),
            Mistake(
                lambda run: margin_ms(run, least="max", worst="median"),
                "That is its worst step beyond what the others do typically: the largest difference"
                " that can be made. The rule takes the smallest.",
            ),
            *(
                Mistake(
                    lambda run, step=step: float(lateness_ms(run, STEPS).max(axis=1).agg(step)),
                    "That is how late the suspect is. How late are the others? Subtract their worst"
                    " step.",
                )
                for step in ("min", "median", "max")
            ),
            Mistake(
                lambda run: float(per_step_ms(run).min()),
                "You compared step by step. The rule is stricter: the suspect's least late step"
                " against the worst one of *all* steps of the others, one number"
                " (`max(axis=None)`).",
            ),
            Mistake(
                lambda run: margin_ms(run, each="max"),
                "These are single collectives. How late a rank is in a step is the mean over them.",
            ),
            Mistake(
                lambda run: -margin_ms(run),
                "The right size, turned round: positive means that the suspect is later than all"
                " others.",
            ),
        ),
        hints=(
            "The suspect is the column with the largest median: `.median().idxmax()`.",
            "Its least late step is `[suspect].min()`.",
            "The worst step of the others: `.drop(columns=suspect).max(axis=None)`. Subtract.",
        ),
        insight=lambda run: (
            "So it is a straggler by the strict rule, too: its least late step is"
            f" {lateness_ms(run, STEPS).max(axis=1).min():.1f} ms late."
            f" {tidyprof.ranks(run).attrs['evidence']}"
        ),
    ),
    Exercise(
        id="07.3",
        answer=Number(lambda scaling: gain(scaling), unit="times"),
        mistakes=(
            Mistake(
                lambda scaling: gain(scaling, before=(1, 256)),
                "That compares with one GPU of 256 images, which often waits. The case runs on one"
                " with 1,024.",
            ),
            Mistake(
                lambda scaling: gain(scaling, after=(4, 1024)),
                "A step then has 4,096 images: that is another training. It is to keep its 1,024.",
            ),
            Mistake(
                lambda scaling: gain(scaling) / 4,
                "The rates are those of each GPU: four of them make four times as many images.",
            ),
            Mistake(
                lambda scaling: 1 / gain(scaling),
                "That is one GPU compared with four: turn the fraction round.",
            ),
            Mistake(
                lambda scaling: 4, "Four times is the promise. What do the rates of the table say?"
            ),
        ),
        hints=(
            (
                "Which row is the case as it is? Which row has four GPUs, and as many images in a"
                " step?"
            ),
            "Multiply each rate by its number of GPUs, then divide.",
        ),
        insight=lambda scaling: (
            f"In the model {'nothing is' if gain(scaling) < 1.05 else 'little is'} gained for four"
            " times the GPUs: each has a quarter of the images, and as many launches as before."
            " Measure it on yours."
        ),
    ),
)
