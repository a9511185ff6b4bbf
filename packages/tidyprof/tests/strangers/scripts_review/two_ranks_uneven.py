"""Written by a group that trains on two machines, here two processes on one.
A small transformer with DistributedDataParallel; each rank reads its own shard of documents."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

SHARDS = [{"documents": 8, "length": 64}, {"documents": 32, "length": 64}]
VOCABULARY, WIDTH = 512, 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.body(self.embedding(tokens), mask=mask, is_causal=True))


def main(rank):
    from instrument_me import Watch

    torch.set_num_threads(1)
    torch.manual_seed(23)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    generator = torch.Generator().manual_seed(100 + rank)
    shard = SHARDS[rank]

    watch = Watch()
    for step in range(14):
        tokens = torch.randint(
            0, VOCABULARY, (shard["documents"], shard["length"] + 1), generator=generator
        )
        watch("forward")
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        watch("optimizer")
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(step, loss.item(), flush=True)
        watch.step()
    watch.close()
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    context = mp.get_context("spawn")
    ranks = []
    for rank in range(2):
        os.environ["RANK"] = str(rank)
        process = context.Process(target=main, args=(rank,), daemon=True)
        process.start()
        ranks.append(process)
    for process in ranks:
        process.join()
    raise SystemExit(max(abs(process.exitcode) for process in ranks))
