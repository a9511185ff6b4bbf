"""Find the missing rank when a job hangs, using dumps from PyTorch's flight recorder.

Save this file as find_missing_ranks.py next to your training script, and add these
lines to the script:

    # before init_process_group, to size the buffer
    from find_missing_ranks import watch

    dist.init_process_group(...)
    stop = watch("dumps", dist.get_rank())
    try:
        train()
    finally:
        stop()

After the timeout, print the last call of each rank:

    python 15_find_missing_ranks.py dumps
"""

import os
import pickle
import re
import sys
import threading
from pathlib import Path

# Number of calls to keep. Older PyTorch versions use TORCH_NCCL_TRACE_BUFFER_SIZE
# instead and record nothing unless that variable is set.
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")


def watch(folder, rank, every=5.0):
    """Write this rank's dump every `every` seconds. Return a function that writes the
    last dump.
    """
    from torch._C import _distributed_c10d as recorder
    from torch.distributed import get_backend

    # gloo has a separate recorder. The NCCL recorder also covers RCCL.
    dump = (
        recorder._dump_fr_trace
        if get_backend() == "gloo"
        else recorder._dump_nccl_trace
    )
    target, ended = Path(folder, f"rank_{rank}"), threading.Event()
    target.parent.mkdir(parents=True, exist_ok=True)

    def write():
        partial = target.with_name(f".{target.name}.partial")
        partial.write_bytes(dump())
        # So that readers never see an incomplete dump
        partial.replace(target)

    def repeat():
        while not ended.wait(every):
            write()

    threading.Thread(target=repeat, daemon=True).start()
    return lambda: (ended.set(), write())


class Plain(pickle.Unpickler):
    """Dump reader that never runs code. Dumps are pickles, and a pickle can contain
    code.
    """

    def find_class(self, module, name):
        """Reject all classes and functions."""
        raise pickle.UnpicklingError(f"A PyTorch dump never contains {module}.{name}.")


def own_line(call):
    """Return the innermost stack line outside PyTorch and other libraries."""
    for frame in call["frames"]:
        if not re.search("/torch/|/site-packages/|^<", frame["filename"]):
            return f"{frame['filename']}:{frame['line']}"
    return ""


def last_calls(file):
    """Return a rank's last collective for each group, and the rank's pending messages.

    A collective consists of its number, its name with the sizes, and its code line.
    """
    try:
        with file.open("rb") as opened:
            calls = Plain(opened).load()["entries"]
    except EOFError:
        sys.exit(
            f"{file} is empty or incomplete. The disk may be full, or the rank was "
            "killed while it wrote the file. Move the file to another folder."
        )
    last, pending = {}, []
    for call in sorted(calls, key=lambda call: call["record_id"]):
        if not call["is_p2p"]:
            name = f"{call['profiling_name']} {call['input_sizes']}"
            last[call["process_group"][0]] = (
                call["collective_seq_id"],
                name,
                own_line(call),
            )
        elif (
            call["state"] != "completed"
            # In a batch, only the last call, the coalesced one, has a state
        ):
            pending.append(f"{call['profiling_name']} {own_line(call)}")
    return last, pending


def dumps(folder):
    """Return the last calls of each rank. Each dump's file name ends with the rank."""
    files = [file for file in Path(folder).glob("*[0-9]") if file.is_file()]
    return {
        int(re.search(r"\d+$", file.name)[0]): last_calls(file)
        for file in files
        if file.read_bytes()[:1] in (b"\x80", b"")
    }


if __name__ == "__main__":
    found = dumps(sys.argv[1])
    if not found:
        sys.exit(
            f"{sys.argv[1]} contains no dumps. Pass the folder that you passed to "
            "watch()."
        )
    groups = sorted({group for last, _ in found.values() for group in last})
    for group in groups:
        calls = {
            rank: last[group] for rank, (last, _) in found.items() if group in last
        }
        newest = max(calls.values())[0]
        if len(groups) > 1:
            print(f"group {group}:")
        # Group 0 contains all ranks. Dumps don't list the members of other groups.
        for rank in range(max(found) + 1) if group == "0" else sorted(calls):
            none = (
                "no call"
                if rank in found
                else "no dump: the rank died or didn't write one"
            )
            number, call, line = calls.get(rank, (0, none, ""))
            behind = "  <-- behind, unless its dump is older" if number < newest else ""
            print(f"rank {rank}: call {number} of {newest}, {call} {line}{behind}")
    for rank, (_, pending) in sorted(found.items()):
        for call in pending[:1]:
            print(f"rank {rank} waits in {call}")
