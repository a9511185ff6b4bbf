"""Translation group: small transformer on two processes, gradients averaged by
DistributedDataParallel.

The corpus is cut into one shard per process; batches hold a fixed number of sentences.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from instrument_me import Watch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCAB, DIM, BATCH, STEPS = 800, 128, 24, 14


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(VOCAB, DIM), nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(128, DIM)
        self.net = nn.Transformer(DIM, 4, 1, 1, 4 * DIM, dropout=0.0, batch_first=True)
        self.proj = nn.Linear(DIM, VOCAB)

    def forward(self, src, tgt):
        pos = self.pos.weight[: src.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.proj(
            self.net(self.src(src) + pos, self.tgt(tgt) + pos, tgt_mask=mask, tgt_is_causal=True)
        )


def corpus(n):
    gen = torch.Generator().manual_seed(12)
    lengths = (
        (6 + torch.empty(n).exponential_(1 / 30, generator=gen)).clamp(max=110).long().sort().values
    )
    return [torch.randint(1, VOCAB, (int(k),), generator=gen) for k in lengths]


def worker(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    sentences = corpus(world * BATCH * STEPS)
    # neighbours in length share a batch, so there is little padding
    batches = [sentences[i : i + BATCH] for i in range(0, len(sentences), BATCH)]
    shard = batches[rank * STEPS : (rank + 1) * STEPS]
    order = torch.randperm(len(shard), generator=torch.Generator().manual_seed(3)).tolist()

    model = DistributedDataParallel(Seq2Seq())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = Watch()
    for step, k in enumerate(order):
        src = nn.utils.rnn.pad_sequence(shard[k], batch_first=True)
        tgt = src.flip(1)
        watch("forward")
        logits = model(src, tgt)
        loss = nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0
        )
        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        watch("optimizer")
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} | loss {loss.item():.3f}", flush=True)
        watch.step()
    watch.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    ctx = mp.get_context("spawn")
    workers = []
    for r in range(2):
        os.environ["RANK"] = str(r)
        workers.append(ctx.Process(target=worker, args=(r, 2)))
        workers[-1].start()
    for p in workers:
        p.join()
    raise SystemExit(max(abs(p.exitcode) for p in workers))
