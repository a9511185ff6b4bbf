"""Which rank is missing when a job hangs? Dumps of PyTorch's flight recorder, and what each rank
called last.

In a training script (this file beside it as find_missing_ranks.py):

    from find_missing_ranks import watch          # before init_process_group: it sizes the buffer
    dist.init_process_group(...)
    stop = watch("dumps", dist.get_rank())
    try:
        train()
    finally:
        stop()

After the time-out:

    python 15_find_missing_ranks.py dumps
"""

import os
import pickle
import re
import sys
import threading
from pathlib import Path

# Calls that are kept. An older PyTorch calls this TORCH_NCCL_TRACE_BUFFER_SIZE, and records nothing
# without it.
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")


def watch(folder, rank, every=5.0):
    """Write this rank's dump every `every` seconds, and once more when what this returns is
    called.
    """
    from torch._C import _distributed_c10d as recorder
    from torch.distributed import get_backend

    # gloo has a recorder of its own; the one of NCCL is RCCL's, too.
    dump = recorder._dump_fr_trace if get_backend() == "gloo" else recorder._dump_nccl_trace
    target, ended = Path(folder, f"rank_{rank}"), threading.Event()
    target.parent.mkdir(parents=True, exist_ok=True)

    def write():
        partial = target.with_name(f".{target.name}.partial")
        partial.write_bytes(dump())
        partial.replace(target)  # a dump is whole or the one before

    def repeat():
        while not ended.wait(every):
            write()

    threading.Thread(target=repeat, daemon=True).start()
    return lambda: (ended.set(), write())


class Plain(pickle.Unpickler):
    """A dump is a pickle, and a pickle can run code. This one may not."""

    def find_class(self, module, name):
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"{module}.{name} in a dump: not PyTorch's")


def own_line(call):
    """The innermost line of a call that is neither torch's nor a library's."""
    frames = [
        frame
        for frame in call["frames"]
        if not re.search("/torch/|/site-packages/|^<", frame["filename"])
    ]
    return f"{frames[0]['filename']}:{frames[0]['line']}" if frames else ""


def last_calls(file):
    """Group -> number, name and own line of a rank's last collective there, and its messages that
    are pending.
    """
    try:
        with file.open("rb") as opened:
            calls = Plain(opened).load()["entries"]
    except EOFError:
        sys.exit(
            f"{file}: empty or cut off: a full disk, or its rank was killed while it wrote. Move it"
            " away"
        )
    last, pending = {}, []
    for call in sorted(calls, key=lambda call: call["record_id"]):
        if not call["is_p2p"]:
            name = f"{call['profiling_name']} {call['input_sizes']}"
            last[call["process_group"][0]] = call["collective_seq_id"], name, own_line(call)
        elif call["state"] != "completed":  # in a batch only the last one, coalesced, has a state
            pending.append(f"{call['profiling_name']} {own_line(call)}")
    return last, pending


def dumps(folder):
    """Rank -> last calls, of the dumps in a folder; a dump's name ends with its rank."""
    files = [
        file
        for file in Path(folder).glob("*[0-9]")
        if file.is_file() and file.read_bytes()[:1] in (b"\x80", b"")
    ]
    return {int(re.search(r"\d+$", file.name)[0]): last_calls(file) for file in files}


if __name__ == "__main__":
    found = dumps(sys.argv[1])
    if not found:
        sys.exit(f"{sys.argv[1]}: no dumps here")
    groups = sorted({group for last, _ in found.values() for group in last})
    for group in groups:
        # Of other groups than the first one a dump does not say who belongs to them: those that
        # called something.
        ranks = (
            range(max(found) + 1)
            if group == "0"
            else [rank for rank in sorted(found) if group in found[rank][0]]
        )
        newest = max(
            found[rank][0][group][0] for rank in ranks if group in found.get(rank, ({},))[0]
        )
        if len(groups) > 1:
            print(f"group {group}:")
        for rank in ranks:
            none = (
                (0, "no call", "") if rank in found else (0, "no dump: dead, or it wrote none", "")
            )
            number, call, line = found.get(rank, ({},))[0].get(group, none)
            behind = "  <-- behind, unless its dump is older" if number < newest else ""
            print(f"rank {rank}: call {number} of {newest}, {call} {line}{behind}")
    for rank, (_, pending) in sorted(found.items()):
        for call in pending[:1]:
            print(f"rank {rank} waits in {call}")
