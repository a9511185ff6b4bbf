"""How often `tidyprof triage` is right, where the truth is known: programs on a GPU, strangers'
scripts and recordings, and the trainer's faults, played by gpumodel.

Writes its figures into docs/triage.md and docs/triage-files.md: `python -m benchmarks.bench_triage`
those of files, in seconds, `python -m benchmarks.bench_triage SEEDS` those of the model, too.
Nothing here is a timing. It records steps that do not ship (with torch, once, kept in gpumodel's
cache); a run of the model takes two seconds or more.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

import tidyprof
from benchmarks.page import DOCS, write_part
from benchmarks.triage_files import gpu_forms, gpu_rates, listed, rates, strangers
from cifar_train.config import ZOO, TrainConfig, apply_to_config
from gpumodel import Run, Training, simulate
from gpumodel.run import RankRun
from gpumodel.writers import write
from tidyprof.diagnosis.causes import LIMIT
from tidyprof.diagnosis.verdict import HEALTHY, UNCLEAR, Diagnosis, triage
from tidyprof.tables.intervals import union_length

PAGE, FILES = DOCS / "triage.md", DOCS / "triage-files.md"
MODELS, RANKS, PROCESSES = ("resnet", "swinv2", "vit"), 4, 2

BATCHES = {64: {}, 512: {}, 4096: {"batched_transforms": True}}
"""Batch -> options: the largest fills the device, if a loader that transforms whole batches keeps
up.
"""

WATCHED = {
    "torch_profile": True,
    "max_steps": 5,
}

SIGN = {
    "slow-loader": "late-data",
    "sync-every-step": "blocked-host",
    "unpinned-copies": "exposed-copies",
    "recompile": "recompiling",
    "no-warmup": "start-up",
    "rank-skew": "silent-host",
}
"""Fault -> cause that must be found where it costs LIMIT of the step or more. With several ranks
rank-skew is a straggler. tiny-batch, many-small-kernels and wrong-layout leave more or smaller
kernels, and memory-growth nothing: they must come out as the healthy run of their batch.
broken-grad takes work away, and one kernel may dominate what is left.
"""

BAND = 0.05
"""So near to a limit either answer is right: a share is a mean of three steps."""


@dataclass(frozen=True)
class Case:
    """What is played."""

    model: str
    batch: int
    fault: str = ""
    ranks: int = 1


@dataclass(frozen=True)
class Played:
    """A case with one seed. step_ns and idle are the model's own, not read from a trace: a step,
    and the share of the time in which the device idles, of several that of the one that does most,
    since the others wait for it.
    """

    case: Case
    seed: int
    step_ns: float
    idle: float
    diagnosis: Diagnosis


def cases() -> Iterator[Case]:
    """All faults and none on one GPU; on several the healthy run and the fault of one rank."""
    for model, batch in itertools.product(MODELS, BATCHES):
        yield from (Case(model, batch, fault) for fault in ("", *ZOO))
        yield from (Case(model, batch, fault, RANKS) for fault in ("", "rank-skew"))


def play(case: Case, seed: int) -> Run:
    """The run as torch.profiler records three steps of it, every rank."""
    options = WATCHED | BATCHES[case.batch] | {"compile": case.fault == "recompile"}
    config = TrainConfig(model=case.model, batch_size=case.batch, pathology=case.fault or None,
                         profile_all_ranks=case.ranks > 1, **options)  # fmt: skip
    return simulate(
        Training(config=apply_to_config(config), ranks=case.ranks, profiler="torch", seed=seed)
    )


def diagnosed(case: Case, seed: int) -> Played:
    """Play, write, read and diagnose."""
    run = play(case, seed)
    with tempfile.TemporaryDirectory() as folder:
        write("kineto", run, Path(folder), compress=False)
        diagnosis = triage(tidyprof.read(folder))
    steps, idle = zip(*map(_own_numbers, run.ranks), strict=True)
    return Played(case, seed, steps[0], max(idle), diagnosis)


def _own_numbers(rank: RankRun) -> tuple[float, float]:
    """Median step in ns, and the share of the steps in which the device of a rank idles."""
    steps = rank.annotations[rank.annotations["name"].str.startswith("ProfilerStep")].iloc[2:]
    begin, end = steps["start_ns"].min(), (steps["start_ns"] + steps["duration_ns"]).max()
    work = rank.device_work[rank.device_work["start_ns"].between(begin, end)]
    busy = union_length(work["start_ns"], work["start_ns"] + work["duration_ns"])
    return float(steps["duration_ns"].median()), 1 - busy / (end - begin)


def expected(case: Case, step_ns: dict[Case, float], idle: dict[Case, float]) -> set[str]:
    """The right answers, by construction: a fault where it costs the step enough, else what its
    healthy run is.

    Where the healthy run is launch-bound, too, and loses more to it than the fault costs, either
    answer is right: both are there, and the larger one may lead.
    """
    twin = Case(case.model, TrainConfig(batch_size=case.batch).batch_size, "", case.ranks)
    share = 1 - step_ns[twin] / step_ns[case]
    own = {"launch-bound"} if idle[twin] > LIMIT + BAND or case.fault == "tiny-batch" else {HEALTHY}
    if abs(idle[twin] - LIMIT) <= BAND:
        own = {HEALTHY, "launch-bound"}
    if case.fault == "broken-grad":
        own |= {"one-kernel"}
    if case.fault not in SIGN:
        return own
    sign = "straggler" if case.ranks > 1 else SIGN[case.fault]
    if case.fault == "no-warmup":
        return {sign}
    if share <= LIMIT + BAND:
        return own | {sign} if share > LIMIT - BAND else own
    launching = idle[twin] * step_ns[twin] / step_ns[case]
    return {"launch-bound", sign} if launching > share - BAND else {sign}


def summary(played: list[Played]) -> str:
    """The confusion matrix, the rates and the misses, as Markdown."""
    by_case: dict[Case, list[Played]] = defaultdict(list)
    for one in played:
        by_case[one.case].append(one)
    step_ns = {
        case: float(pd.Series([one.step_ns for one in own]).median())
        for case, own in by_case.items()
    }
    idle = {
        case: float(pd.Series([one.idle for one in own]).median()) for case, own in by_case.items()
    }
    answers = {case: expected(case, step_ns, idle) for case in by_case}
    names = sorted({one.diagnosis.cause for one in played})
    lines = [
        "| fault | runs | right | " + " | ".join(names) + " |",
        "| --- | --: | --: |" + " --: |" * len(names),
    ]
    for fault, ranks in dict.fromkeys((case.fault, case.ranks) for case in by_case):
        own = [one for one in played if (one.case.fault, one.case.ranks) == (fault, ranks)]
        found = Counter(one.diagnosis.cause for one in own)
        right = sum(one.diagnosis.cause in answers[one.case] for one in own)
        place = f"{fault or 'none'}, {ranks} ranks" if ranks > 1 else fault or "none"
        cells = " | ".join(str(found[name] or "") for name in names)
        lines.append(f"| {place} | {len(own)} | {100 * right / len(own):.0f} % | {cells} |")
    wrong = [one for one in played if one.diagnosis.cause not in answers[one.case]]
    return "\n".join([*lines, "", *_rates(played, wrong), "", *_misses(wrong, answers)]) + "\n"


def _rates(played: list[Played], wrong: list[Played]) -> list[str]:
    sure = [one for one in wrong if one.diagnosis.sure]
    unclear = sum(one.diagnosis.cause == UNCLEAR for one in played)
    healthy = [one for one in wrong if not one.case.fault]
    right, sure_and_wrong = 100 * (1 - len(wrong) / len(played)), 100 * len(sure) / len(played)
    seeds = Counter(one.case for one in played).values()
    return [
        f"{len(played)} runs of {len(seeds)} cases, {min(seeds)} seeds of each: {right:.1f} %"
        f" right, {sure_and_wrong:.1f} % sure and wrong, {unclear} can't tell; {len(healthy)} wrong"
        " without a fault."
    ]


def _misses(wrong: list[Played], answers: dict[Case, set[str]]) -> list[str]:
    counted = Counter((one.case, one.diagnosis.cause, one.diagnosis.sure) for one in wrong)
    if not counted:
        return ["Misses: none."]
    lines = ["| miss | runs | said | sure | expected |", "| --- | --: | --- | --- | --- |"]
    for (case, cause, sure), count in counted.items():
        what = f"{case.model}, batch {case.batch}, {case.fault or 'no fault'}, {case.ranks} ranks"
        lines.append(
            f"| {what} | {count} | {cause} | {'yes' if sure else 'no'} |"
            f" {' or '.join(sorted(answers[case]))} |"
        )
    return lines


def all_played(chosen: Iterable[tuple[Case, int]]) -> list[Played]:
    """Each case with each seed, in PROCESSES processes."""
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        return list(pool.map(diagnosed, *zip(*chosen, strict=True), chunksize=4))


def write_files() -> None:
    """Write the tables of files into the pages."""
    write_part(PAGE, "programs on a GPU", gpu_rates())
    write_part(FILES, "forms on a GPU", gpu_forms())
    found = strangers()
    write_part(PAGE, "strangers", rates(found))
    for part, own in zip(
        ("recordings", "first scripts", "new scripts"), found.values(), strict=True
    ):
        write_part(FILES, part, listed(own))


def main() -> None:
    """Write the tables of files, and with a number of seeds those of the model."""
    write_files()
    if len(sys.argv) > 1:
        seeds = range(int(sys.argv[1]))
        write_part(
            FILES,
            "figures",
            summary(all_played((case, seed) for case in cases() for seed in seeds)),
        )


if __name__ == "__main__":
    main()
