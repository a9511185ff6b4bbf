"""The exercises of lesson 07: file names of ranks, a threshold, bus bandwidth, waiting, the straggler, more GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises.answers import Number, Property
from proflab.exercises.model import Exercise, Mistake
from proflab.standins.play import Process, expand

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.steady_part import SteadyPart
    from tidyprof import Profile

RANKS = 4


def written_names(pattern: str, launcher: pd.Series, pids: tuple[int, ...]) -> list[str]:
    """What the tool makes of a pattern on each of RANKS ranks; a row of launchers.csv says what a rank knows."""
    inherited = dict([launcher["inherited"].split("=")] if launcher["inherited"] else [])
    size = {launcher["size"]: str(RANKS)}
    return [
        expand(pattern, Process("node0", pid, ["python"], {**inherited, **size, launcher["rank"]: str(rank)}))
        for rank, pid in enumerate(pids)
    ]


def naming_problem(pattern: object, launcher: pd.Series) -> str | None:
    """What is wrong with a pattern for `--output-file`, None if each rank has a file of its own that tells the rank."""
    if not isinstance(pattern, str) or not pattern.strip():
        return "A text such as `rank%rank%_%pid%` is asked."
    if "%q{" in pattern or "$" in pattern:
        return "Use the tool's own placeholders between percent signs: the shell must not replace anything."
    # Two ranks on each of two nodes: process numbers differ within a node, and may repeat on the other.
    names = written_names(pattern, launcher, (41250, 41257, 41250, 41257))
    if len(set(names)) == 1:
        return f"All {RANKS} ranks write `{names[0]}`: the last one replaces the others. Which variable differs here?"
    if len(set(names)) < RANKS:
        return f"Two nodes can count alike: {RANKS} ranks may write {len(set(names))} files."
    return None


def start_times(profile: Profile) -> pd.DataFrame:
    """Starts in ns: a row for each collective, a column for each rank."""
    return tidyprof.collectives(profile, per_rank=True).pivot(index="number", columns="rank", values="start_ns")


def worst_lateness_ms(
    part: SteadyPart, origin: str = "median", each: str = "mean", summary: Callable[[Any], Any] | None = None
) -> float:
    """The largest lateness of a rank in a step, in ms: the mean over the step's collectives, or what `each` says;
    `summary` of all such where it is given."""
    starts = start_times(part.profile)
    late = starts.sub(starts.agg(origin, axis=1), axis=0).groupby(starts.index // (len(starts) // part.steps)).agg(each)
    return float((late.max(axis=None) if summary is None else summary(late)) / 1e6)


def largest(travels: pd.DataFrame) -> pd.DataFrame:
    """The rows of the bucket with most elements, one for each rank."""
    return travels[travels["elements"] == travels["elements"].max()]


def bus_rate(travels: pd.DataFrame, time_us: Callable[[pd.DataFrame], float], factor: float | None = None) -> float:
    """Bus bandwidth of the largest bucket in GB/s, over a time in µs; `factor` in the place of a ring's."""
    big = largest(travels)
    ring = 2 * (len(big) - 1) / len(big) if factor is None else factor
    return float(ring * 4 * big["elements"].max() / time_us(big) / 1e3)


def exchange_us(big: pd.DataFrame) -> float:
    """From the last rank's start to the last one's end."""
    return float((big["start_us"] + big["length_us"]).max() - big["start_us"].max())


def totals_ms(profile: Profile) -> pd.Series:
    """Each rank's time in collectives, in ms, from the shortest (the straggler's, who does not wait) to the longest."""
    totals = tidyprof.collectives(profile, per_rank=True).groupby("rank")["duration_ns"].sum()
    return totals.sort_values() / 1e6


def others_wait_ms(profile: Profile) -> float:
    """Mean over all ranks but the straggler of what their collectives took longer than its own, in ms."""
    totals = totals_ms(profile)
    return float(totals.iloc[1:].mean() - totals.iloc[0])


def waiting_percent(
    profile: Profile, part: str = "wait_ns", whole: tuple[str, ...] = ("wait_ns", "transfer_ns")
) -> float:
    """What share of rank 0's time in collectives passes before the last rank has entered."""
    row = tidyprof.ranks(profile).set_index("rank").loc[0]
    return float(100 * row[part] / sum(row[column] for column in whole))


def waiting_percent_uncut(profile: Profile) -> float:
    """The same, where a rank that has left before the last one came counts as waiting."""
    own = tidyprof.collectives(profile, per_rank=True)
    until_last = own.groupby("number")["start_ns"].transform("max") - own["start_ns"]
    first = own["rank"] == 0
    return float(100 * until_last[first].sum() / own["duration_ns"][first].sum())


def waiting_percent_capped(profile: Profile) -> float:
    """The same, where such a rank counts as waiting for as long as its own collective takes."""
    own = tidyprof.collectives(profile, per_rank=True)
    until_last = own.groupby("number")["start_ns"].transform("max") - own["start_ns"]
    first = own["rank"] == 0
    return float(100 * until_last.clip(upper=own["duration_ns"])[first].sum() / own["duration_ns"][first].sum())


def waiting_percent_of_all(profile: Profile) -> float:
    """The same over all ranks, the straggler included."""
    table = tidyprof.ranks(profile)
    return float(100 * table["wait_ns"].sum() / (table["wait_ns"].sum() + table["transfer_ns"].sum()))


def gain(scaling: pd.DataFrame, before: tuple[int, int] = (1, 1024), after: tuple[int, int] = (4, 256)) -> float:
    """How many times as many images per second one run makes as another; each is (GPUs, images on each)."""
    rates = scaling.set_index(["gpus", "batch"])["rate_per_gpu"]
    return float(after[0] * rates[after] / (before[0] * rates[before]))


EXERCISES = (
    Exercise(
        id="07.1",
        answer=Property(naming_problem, lambda launcher: f"rank%env{{{launcher['rank']}}}%_pid%pid%"),
        mistakes=(
            Mistake(lambda launcher: "rank%rank%", "All 4 ranks write `rank0`"),
            Mistake(lambda launcher: "rank%rank%_%pid%", "Two nodes can count alike"),
            Mistake(lambda launcher: "rank%env{RANK}%", "All 4 ranks write `rank`"),
            Mistake(lambda launcher: "rank$RANK", "must not replace anything"),
        ),
        hints=(
            "The row of this launcher names what it sets, and what its ranks inherit from the job.",
            "`%rank%` looks at Slurm's variable first. The job script has it, with the value 0, and what mpirun starts "
            "inherits it.",
            "`%env{NAME}%` takes any variable; Open MPI's begin with `OMPI_COMM_WORLD_`.",
        ),
        insight="Keep `%pid%` too: a rank may start further processes. And count the files after every run.",
    ),
    Exercise(
        id="07.2",
        answer=Number(worst_lateness_ms, unit="ms"),
        mistakes=(
            Mistake(
                lambda part: worst_lateness_ms(part, "min"),
                "This counts from the first rank, so that one early rank makes all others late. Count from the median.",
            ),
            Mistake(
                lambda part: worst_lateness_ms(part, summary=lambda late: late.mean().max()),
                "This is the mean over all steps. A threshold has to cover the worst step of a healthy run.",
            ),
            Mistake(
                lambda part: worst_lateness_ms(part, each="max"),
                "This is one single collective. How late a rank is in a step is the mean over the step's collectives.",
            ),
        ),
        hints=(
            "Subtract each row's median from it: `starts.sub(starts.median(axis=1), axis=0)`.",
            "Group these differences by `step`, and take the mean of each group.",
            "Then the largest of all means, in ms: `.groupby(step).mean().max(axis=None) / 1e6`.",
        ),
        insight=lambda part: (
            f"That is {100 * worst_lateness_ms(part) * 1e6 / part.step_ns:.1f} % of its step, without any fault."
        ),
    ),
    Exercise(
        id="07.3",
        answer=Number(lambda travels: bus_rate(travels, exchange_us), unit="GB/s"),
        mistakes=(
            Mistake(
                lambda travels: bus_rate(travels, lambda big: big["length_us"].max()),
                "You divided by the length of the kernel on the rank that waits longest: most of it is waiting.",
            ),
            Mistake(
                lambda travels: bus_rate(travels, lambda big: big["length_us"].mean()),
                "The kernel's length holds the waiting, in the mean too: begin when the last rank has come.",
            ),
            Mistake(
                lambda travels: bus_rate(travels, exchange_us, factor=1),
                "That is bytes over time. In a ring each rank sends 2(n-1)/n times as much.",
            ),
            Mistake(
                lambda travels: bus_rate(travels, exchange_us) / 4,
                "These are elements per nanosecond: a `Float` has four bytes.",
            ),
        ),
        hints=(
            "`big` has a row for each rank; the last one comes at the largest `start_us`.",
            "The exchange lasts from the largest `start_us` to the largest end, which is `start_us + length_us`.",
            "2(n-1)/n times 4 bytes times elements, divided by the µs, is in MB/s: divide by 1000.",
        ),
        insight=lambda travels: (
            f"By the longest kernel it would be {bus_rate(travels, lambda big: big['length_us'].max()):.1f} GB/s, and "
            "the network would be blamed."
        ),
    ),
    Exercise(
        id="07.4",
        answer=Number(waiting_percent, unit="percent", relative=0.0005),
        mistakes=(
            Mistake(
                lambda data: waiting_percent(data, "transfer_ns"),
                "This is the exchange. The waiting is the other part.",
            ),
            Mistake(
                waiting_percent_uncut,
                "Rank 0 sends the broadcasts, and has left them before the last rank comes. It does not wait in those.",
            ),
            Mistake(
                waiting_percent_capped,
                "Here the whole of a broadcast counts as waiting. Rank 0 sends it, and has left before the last rank "
                "comes: its wait there is 0.",
            ),
            Mistake(waiting_percent_of_all, "This is over all ranks, the straggler too. Only rank 0 is asked."),
            Mistake(
                lambda data: waiting_percent(data, whole=("total_ns",)),
                "This is the share of all recorded time; the time in collectives is asked.",
            ),
        ),
        hints=(
            "Number the collectives on each rank first: `unknown.groupby('rank').cumcount()`.",
            "`unknown.groupby('number')['start_us'].transform('max')` is the start of the last rank, in each row.",
            "The wait is that minus `start_us`, or 0 where a rank has ended before. Then take the rows of rank 0.",
        ),
        insight="A faster network could shorten only the rest.",
    ),
    Exercise(
        id="07.5",
        answer=Number(others_wait_ms, unit="ms", relative=0.002),
        mistakes=(
            Mistake(
                lambda profile: totals_ms(profile).iloc[1:].mean(),
                "This is all of their time in collectives. Take off the transfer: what the straggler spends in them.",
            ),
            Mistake(
                lambda profile: (totals_ms(profile) - totals_ms(profile).iloc[0]).mean(),
                "The straggler is in this mean, and does not wait. Only the others are asked.",
            ),
            Mistake(
                lambda profile: (totals_ms(profile) - totals_ms(profile).iloc[0]).sum(),
                "This is what all others wait together. The mean of them is asked.",
            ),
            Mistake(
                lambda profile: totals_ms(profile).iloc[-1] - totals_ms(profile).iloc[0],
                "That is the rank that waits longest. The mean of all three is asked.",
            ),
            Mistake(
                lambda profile: others_wait_ms(profile) / tidyprof.collectives(profile)["number"].nunique(),
                "That is the wait in one collective, on average. All of them together are asked.",
            ),
            Mistake(
                lambda profile: totals_ms(profile).mean(),
                "This is the mean time in collectives of all four ranks. How much of it is waiting?",
            ),
            Mistake(
                lambda profile: totals_ms(profile).sum() - RANKS * totals_ms(profile).iloc[-1],
                "The rank that waits longest is no yardstick: the shortest total is all transfer.",
            ),
            Mistake(
                lambda profile: totals_ms(profile).iloc[-1] - totals_ms(profile).iloc[:-1].mean(),
                "That rank has the longest collectives: it came early, and waited. Who kept it waiting?",
            ),
        ),
        hints=(
            "The rank that comes last does not wait, so its collectives are the shortest: they are all transfer.",
            'First each rank\'s total: `unknown.groupby("rank")["length_us"].sum() / 1000`.',
            "Take the smallest total off each of the other three, and give their mean.",
        ),
        insight=lambda data: (
            f"With all starts it is {tidyprof.ranks(data)['wait_ns'].sort_values().iloc[1:].mean() / 1e6:.1f} ms. "
            f"{tidyprof.ranks(data).attrs['evidence']}"
        ),
    ),
    Exercise(
        id="07.6",
        answer=Number(lambda scaling: gain(scaling), unit="times"),
        mistakes=(
            Mistake(
                lambda scaling: gain(scaling, before=(1, 256)),
                "That compares with one GPU of 256 images, which often waits. The case runs on one with 1,024.",
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
            Mistake(lambda scaling: 4, "Four times is the promise. What do the rates of the table say?"),
        ),
        hints=(
            "Which row is the case as it is? Which row has four GPUs, and as many images in a step?",
            "Multiply each rate by its number of GPUs, then divide.",
        ),
        insight=lambda scaling: (
            f"{'Nothing gained' if gain(scaling) < 1.05 else 'Little gained'} for four times the GPUs: each has a "
            "quarter of the images, and as many launches as before."
        ),
    ),
)
