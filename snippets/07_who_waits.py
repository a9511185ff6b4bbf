"""Show how long ranks wait for each other in a job. The script reads one torch.profiler
trace per rank.

    python 07_who_waits.py traces/*.json.gz
    python 07_who_waits.py traces/*.json.gz --healthy traces_of_a_healthy_run/*.json.gz

For each collective, the script prints how long the ranks waited for the last rank and
how long the transfer took. The script then names the latest rank and decides whether
its delay could be chance.

- With a healthy run, a rank is a straggler if it is later in its median step than any
  rank of the healthy run is in any step.
- Without a healthy run, a rank is a straggler if it is later in each step than any
  other rank is in any step.
- A delay of less than 1% of a step doesn't matter.
"""

import argparse
import gzip
import json
import re

import pandas as pd

COLLECTIVE = re.compile(r"nccl|rccl|^gloo:", re.IGNORECASE)
TOGETHER = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE
)


def read(path):
    """Return the collectives of one rank in order, with times in ms.

    Leave out the copies of host ranges that PyTorch adds above GPU work. Also leave out
    collectives that are cut off at the end of the file.
    """
    if path.endswith(".zst"):
        raise SystemExit(f"{path} is compressed. Unpack it first: zstd -d {path}")
    with (gzip.open if path.endswith(".gz") else open)(path) as file:
        trace = json.load(file)
    events = [
        one
        for one in trace["traceEvents"]
        if one.get("ph") == "X" and one.get("cat") != "gpu_user_annotation"
    ]
    rank = trace.get("distributedInfo", {}).get("rank")
    rank = int(re.findall(r"rank\D*(\d+)", path)[-1]) if rank is None else rank
    launches = {event["args"].get("correlation"): event["ts"] for event in events
                if event.get("cat") in ("cuda_runtime", "cuda_driver")}  # fmt: skip
    steps = sorted(
        {event["ts"] for event in events if event["name"].startswith("ProfilerStep")}
    )
    rows = []
    for event in events:
        args = event.get("args", {})
        on_host = event["name"].startswith("gloo:") and args.get("finished", True)
        if COLLECTIVE.search(event["name"]) and (
            event.get("cat") == "kernel" or on_host
        ):
            asked = launches.get(args.get("correlation"), event["ts"])
            step = sum(begin <= asked for begin in steps) - 1
            start = trace.get("baseTimeNanoseconds", 0) / 1e6 + event["ts"] / 1e3
            name = args.get("Collective name", event["name"])
            rows.append(
                (
                    args.get("Process Group Ranks", "all"),
                    rank,
                    step,
                    name,
                    start,
                    event["dur"] / 1e3,
                )
            )
    table = pd.DataFrame(
        rows, columns=["group", "rank", "step", "name", "start", "ms"]
    ).sort_values("start")
    return table[table["step"] >= 0] if steps else table


def clock_errors(each):
    """Return the number of ms by which each rank's clock is ahead.

    All ranks finish an all-reduce at the same time, so any difference is a clock error.
    """
    together = each[each["name"].str.contains(TOGETHER)]
    ends = together["start"] + together["ms"]
    apart = ends - ends.groupby(
        [together[key] for key in ("group", "step", "number")]
    ).transform("median")
    errors = apart.groupby(together["rank"]).median()
    # The transfer itself can cause smaller differences
    if not errors.max() - errors.min() > 0.1:
        return errors * 0
    print(
        f"The clocks differ by {errors.max() - errors.min():.3f} ms. The script aligns "
        "them at the ends of the collectives.\n"
    )
    return errors


def with_waits(tables):
    """Return the collectives of all ranks, with their number, wait and transfer time.

    Collectives are numbered separately for each group of ranks, step and rank.
    """
    each = pd.concat(tables).sort_values("start", ignore_index=True)
    each["number"] = each.groupby(["group", "step", "rank"]).cumcount()
    same = each.groupby(["group", "step", "number"])
    each = each[
        same["rank"].transform("nunique")
        == each.groupby("group")["rank"].transform("nunique")
    ].copy()
    each["start"] -= clock_errors(each).reindex(each["rank"]).fillna(0).to_numpy()
    last = each.groupby(["group", "step", "number"])["start"].transform("max")
    each["wait"] = (last - each["start"]).where(each["start"] + each["ms"] >= last, 0)
    each["transfer"] = each["ms"] - each["wait"]
    each["arrived_last"] = each["start"] == last
    return each


def lateness(each):
    """Return the number of ms by which each rank (column) starts after the middle rank.

    Each row contains the averages of one step.
    """
    starts = each.pivot(
        index=["group", "step", "number"], columns="rank", values="start"
    )
    middle = starts.quantile(0.5, axis=1, interpolation="lower")
    return starts.sub(middle, axis=0).groupby("step").mean()


def verdict(each, healthy):
    """Return a verdict on the latest rank."""
    late, step_ms = lateness(each), each.groupby("step")["start"].min().diff().median()
    rank = late.median().idxmax()
    if healthy is not None:
        own, chance, what = (
            late[rank].median(),
            healthy.max(axis=None),
            "the latest rank of the healthy run",
        )
    else:
        own, chance, what = (
            late[rank].min(),
            late.drop(columns=rank).max(axis=None),
            "the latest other rank",
        )
    found = (
        "This is too little to matter."
        if own < 0.01 * step_ms
        else "It is a straggler."
    )
    found = found if own > chance else "This can be chance."
    return (
        f"Rank {rank} is the latest, by {own:.3f} ms per collective; {what} is up to "
        f"{chance:.3f} ms late. {found}"
    )


def main():
    parser = argparse.ArgumentParser(
        description="Show how long ranks wait for each other."
    )
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--healthy", nargs="+", default=[])
    options = parser.parse_args()
    each = with_waits(map(read, options.traces))
    if each["rank"].nunique() < 2:
        raise SystemExit(
            "The files contain no collective with at least two ranks. Pass one trace "
            "per rank."
        )
    print(
        each.groupby(["group", "step", "number", "name"])[["wait", "transfer"]]
        .max()
        .round(3)
        .to_string(),
        "\n",
    )
    print(
        each.groupby("rank")[["wait", "transfer", "arrived_last"]]
        .sum()
        .round(3)
        .to_string(),
        "\n",
    )
    healthy = (
        lateness(with_waits(map(read, options.healthy))) if options.healthy else None
    )
    print(verdict(each, healthy))


if __name__ == "__main__":
    main()
