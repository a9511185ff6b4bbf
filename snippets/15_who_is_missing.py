"""Which rank is missing when a job hangs? Dumps of PyTorch's flight recorder, and what each rank called last.

In a training script (this file beside it as who_is_missing.py):

    from who_is_missing import watch          # before init_process_group: it sets the size of the recorder's buffer
    dist.init_process_group(...)
    stop = watch("dumps", dist.get_rank())
    try:
        train()
    finally:
        stop()

After the time-out:    python 15_who_is_missing.py dumps
"""

import os
import pickle
import re
import sys
import threading
from pathlib import Path

# Calls that are kept. An older PyTorch calls this TORCH_NCCL_TRACE_BUFFER_SIZE, and records nothing without it.
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")


def watch(folder, rank, every=5.0):
    """Write this rank's dump every `every` seconds, and once more when what this returns is called."""
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


def last_call(file):
    """Number, name and own line of the last collective in a dump."""
    with file.open("rb") as opened:
        calls = [call for call in Plain(opened).load()["entries"] if not call["is_p2p"]]
    if not calls:
        return 0, "no call", ""
    last = max(calls, key=lambda call: call["record_id"])
    frames = [frame for frame in last["frames"] if "/torch/" not in frame["filename"]]
    line = f"{frames[0]['filename']}:{frames[0]['line']}" if frames else ""
    return last["collective_seq_id"], f"{last['profiling_name']} {last['input_sizes']}", line


def last_calls(folder):
    """Rank -> last call, of the dumps in a folder; a dump's name ends with its rank."""
    dumps = [file for file in Path(folder).glob("*[0-9]") if file.read_bytes()[:1] == b"\x80"]
    return {int(re.search(r"\d+$", file.name)[0]): last_call(file) for file in dumps}


if __name__ == "__main__":
    last = last_calls(sys.argv[1])
    if not last:
        sys.exit(f"{sys.argv[1]}: no dumps here")
    newest = max(number for number, _, _ in last.values())
    for rank in range(max(last) + 1):
        number, call, line = last.get(rank, (0, "no dump: dead, or it wrote none", ""))
        print(f"rank {rank}: call {number} of {newest}, {call} {line}{'  <-- behind' if number < newest else ''}")
