"""DDP, FSDP2 and HSDP in four processes on a processor: python sharded.py FOLDER before, then
train.
"""

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

RANKS, LAYERS, WIDTH, HIDDEN, TOKENS = 4, 4, 256, 1024, 128
TURNS, EXCHANGES = 3, 12
WRITES = {"before": ("before*.json", "predicted.json"), "train": ("rank*.json", "*/rank*.json")}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.projections, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, tokens):
        query, key, value = self.projections(tokens).chunk(3, -1)
        tokens = tokens + self.out(nn.functional.scaled_dot_product_attention(query, key, value))
        return tokens + self.down(torch.relu(self.up(tokens)))


def prepare(how, meshes):
    """The model, prepared for a way of sharing it."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS)))
    if how == "ddp":
        return DistributedDataParallel(model)
    mesh = meshes["hsdp" if how == "hsdp" else "fsdp"]
    for layer in model:  # each layer is a unit, gathered and freed as a whole
        fully_shard(layer, mesh=mesh, reshard_after_forward=how != "fsdp_keep")
    return fully_shard(model, mesh=mesh)  # what is left: nothing here; it makes the root


def meshes_of(ranks):
    names = ("between", "within")
    return {
        "fsdp": init_device_mesh("cpu", (ranks,)),
        "hsdp": init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=names),
    }


def optimizer_of(model):
    """SGD with one momentum: parameters, gradients and momentum are twelve bytes a parameter. Adam
    has two states, so sixteen.
    """
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)


def step(model, optimizer, batch):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def held_bytes(model, optimizer):
    """Bytes of parameters, gradients and optimizer states of this rank, tensor by tensor."""
    states = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [
        *model.parameters(),
        *(p.grad for p in model.parameters() if p.grad is not None),
        *states,
    ]
    return sum(local(tensor).nbytes for tensor in tensors)


def ping(megabytes=4):
    """Seconds of an all-gather and a reduce-scatter of this many megabytes, several times."""
    whole = torch.ones(megabytes * 250_000)
    part = torch.ones(len(whole) // RANKS)
    seconds = {"all_gather": [], "reduce_scatter": []}
    for _ in range(EXCHANGES + 1):
        for name, call in (
            ("all_gather", lambda: dist.all_gather_into_tensor(whole, part)),
            ("reduce_scatter", lambda: dist.reduce_scatter_tensor(part, whole)),
        ):
            dist.barrier()
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return {"bytes": 4 * len(whole), **{name: each[1:] for name, each in seconds.items()}}


def train_by(how, meshes, rank, folder):
    """Train some steps, the last one under torch.profiler."""
    model = prepare(how, meshes)
    optimizer = optimizer_of(model)
    batch = torch.randn(1, TOKENS, WIDTH)
    for _ in range(TURNS):
        step(model, optimizer, batch)
    model(batch).square().mean().backward()  # so that gradients are there to be counted
    row = {"held": held_bytes(model, optimizer)}
    optimizer.zero_grad()
    row["held_before_a_step"] = held_bytes(model, optimizer)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities, record_shapes=True, profile_memory=True
    ) as profiler:
        step(model, optimizer, batch)
    (folder / how).mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / how / f"rank{rank}.json"))
    return row


def before(rank, folder):
    if rank == RANKS:
        return predict_memory(folder)
    with group(rank, folder):
        layer = sum(parameter.numel() for parameter in Layer().parameters())
        facts = {
            "ranks": RANKS,
            "layers": LAYERS,
            "layer_parameters": layer,
            "parameters": LAYERS * layer,
        }
        (folder / f"before{rank}.json").write_text(json.dumps({**facts, "ping": ping()}))
        if rank == 0:
            print("exchanges: done", flush=True)


def train(rank, folder):
    with group(rank, folder):
        meshes = meshes_of(RANKS)
        found = {}
        for how in ("ddp", "fsdp", "fsdp_keep", "hsdp"):
            found[how] = train_by(how, meshes, rank, folder)
            if rank == 0:
                print(f"{how}: done", flush=True)
        found["ping"] = ping()
        (folder / f"rank{rank}.json").write_text(json.dumps(found))


@contextmanager
def group(rank, folder):
    meeting = f"file://{(folder / 'meeting').resolve()}"
    limit = timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=limit)
    yield
    dist.destroy_process_group()


def predict_memory(folder):
    """FSDPMemTracker runs a step of rank 0 with tensors that have shapes but no data: no memory,
    and no other ranks.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    meshes, found = meshes_of(RANKS), {}
    for how in ("fsdp", "fsdp_keep", "hsdp"):
        with FakeTensorMode():
            model = prepare(how, meshes)
            optimizer = optimizer_of(model)
            batch = torch.randn(1, TOKENS, WIDTH)
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs((batch,))
            with tracker:
                for turn in range(2):  # the optimizer's states come with the first step
                    step(model, optimizer, batch)
                    if turn == 0:
                        tracker.reset_mod_stats()
        peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
        found[how] = {getattr(kind, "value", str(kind)): size for kind, size in peak.items()}
        print(f"memory under {how}: predicted", flush=True)
    (folder / "predicted.json").write_text(json.dumps(found))


def play(job, folder, processes):
    """Start each rank as a process of its own; if one fails, the others are ended, too."""
    for old in (
        file for pattern in ("meeting", *WRITES[job.__name__]) for file in folder.glob(pattern)
    ):
        old.unlink()  # what an earlier run left would be taken for this one's
    children = set()
    for rank in range(processes):
        child = os.fork()
        if not child:
            try:
                job(rank, folder)
                os._exit(0)
            except BaseException as error:
                print(
                    f"rank {rank}: {type(error).__name__}: {str(error).partition(chr(10))[0]}",
                    flush=True,
                )
                os._exit(1)
        children.add(child)
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            for other in children:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            print("one rank failed, so nothing is written that could be compared")
            sys.exit(1)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    play(globals()[sys.argv[2]], out, RANKS + (sys.argv[2] == "before"))
