"""Train with DDP, FSDP2 and HSDP in four processes on a CPU.

Run `python sharded.py FOLDER predict`, then `python sharded.py FOLDER train`.
"""

import json
import os
import signal
import sys
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
STEPS = 3


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
    """Build the model and wrap it for one variant."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS)))
    if how == "ddp":
        return DistributedDataParallel(model)
    mesh = meshes["hsdp" if how == "hsdp" else "fsdp"]
    for layer in model:  # each layer is a unit, gathered and freed as a whole
        fully_shard(layer, mesh=mesh, reshard_after_forward=how != "fsdp_keep")
    return fully_shard(model, mesh=mesh)  # FSDP2 also needs a call on the whole model


def meshes_of(ranks):
    names = ("between", "within")
    return {
        "fsdp": init_device_mesh("cpu", (ranks,)),
        "hsdp": init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=names),
    }


def optimizer_of(model):
    """Return SGD with momentum: 12 bytes per parameter with the gradient. Adam would need 16."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)


def step(model, optimizer, batch):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def held_bytes(model, optimizer):
    """Return the bytes of this rank's parameters, gradients and optimizer states."""
    tensors = [value for state in optimizer.state.values() for value in state.values()]
    for parameter in model.parameters():
        tensors += [parameter] if parameter.grad is None else [parameter, parameter.grad]
    local = (each.to_local() if hasattr(each, "to_local") else each for each in tensors)
    return sum(tensor.nbytes for tensor in local)


def train_variant(how, meshes, rank, folder):
    """Train a few steps and trace the last one."""
    model = prepare(how, meshes)
    optimizer = optimizer_of(model)
    batch = torch.randn(1, TOKENS, WIDTH)
    for _ in range(STEPS):
        step(model, optimizer, batch)
    model(batch).square().mean().backward()  # creates the gradients that are counted
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


def train(rank, folder):
    meeting = f"file://{(folder / 'meeting').resolve()}"
    limit = timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=limit)
    meshes, results = meshes_of(RANKS), {}
    for how in ("ddp", "fsdp", "fsdp_keep", "hsdp"):
        results[how] = train_variant(how, meshes, rank, folder)
        if rank == 0:
            print(f"{how}: done", flush=True)
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def predict(folder):
    """Predict the peak memory of rank 0 from fake tensors, which have shapes but no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    meshes, peaks = meshes_of(RANKS), {}
    for how in ("fsdp", "fsdp_keep", "hsdp"):
        with FakeTensorMode():
            model = prepare(how, meshes)
            optimizer = optimizer_of(model)
            batch = torch.randn(1, TOKENS, WIDTH)
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs((batch,))
            with tracker:
                step(model, optimizer, batch)  # creates the optimizer's states
                tracker.reset_mod_stats()
                step(model, optimizer, batch)
        peaks[how] = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        print(f"memory under {how}: predicted", flush=True)
    layer = sum(parameter.numel() for parameter in Layer().parameters())
    facts = {"ranks": RANKS, "layers": LAYERS, "layer_parameters": layer}
    facts["parameters"] = LAYERS * layer
    (folder / "predicted.json").write_text(json.dumps({"facts": facts, "peak": peaks}))


def play(job, folder, ranks):
    """Run `job` in one process per rank, and stop all of them if one fails."""
    for pattern in ("meeting", "rank*.json", "*/rank*.json"):
        for old in folder.glob(pattern):
            old.unlink()  # a result of an earlier run must not look like one of this run
    children = set()
    for rank in range(ranks):
        child = os.fork()
        if not child:
            try:
                job(rank, folder)
                os._exit(0)
            except BaseException as error:
                reason = str(error).partition("\n")[0]
                print(f"rank {rank}: {type(error).__name__}: {reason}", flush=True)
                os._exit(1)
        children.add(child)
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            for other in children:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            print("One rank failed, so this run wrote no results.")
            sys.exit(1)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    if sys.argv[2] == "predict":
        predict(out)
    else:
        play(train, out, RANKS)
