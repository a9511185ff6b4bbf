"""Two ranks train a small encoder and decoder on made-up pairs of sentences (torchrun
--nproc-per-node 2).
"""

import argparse
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

WORDS, WIDTH = 500, 128


class Pairs(Dataset):
    def __init__(self, count):
        rng = random.Random(6)
        self.rows = []
        for _ in range(count):
            source = [rng.randrange(3, WORDS) for _ in range(rng.randrange(8, 88))]
            self.rows.append((torch.tensor(source), torch.tensor([1, *reversed(source), 2])))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    sources, targets = zip(*rows, strict=True)
    return pad_sequence(sources, batch_first=True), pad_sequence(targets, batch_first=True)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(96, WIDTH)
        self.body = nn.Transformer(WIDTH, 4, 2, 2, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def embedded(self, ids):
        return self.words(ids) + self.places.weight[: ids.shape[1]]

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.head(
            self.body(
                self.embedded(source), self.embedded(target), tgt_mask=mask, tgt_is_causal=True
            )
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cut-sorted",
        action="store_true",
        help="cut the corpus, sorted by length, in one part a rank",
    )
    args = parser.parse_args()
    on_gpus = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl" if on_gpus else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    device = torch.device("cpu")
    if on_gpus:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    pairs = Pairs(960)
    if args.cut_sorted:
        order = sorted(range(len(pairs)), key=lambda n: len(pairs.rows[n][0]))
        part = len(order) // ranks
        loader = DataLoader(
            Subset(pairs, order[rank * part : (rank + 1) * part]),
            16,
            shuffle=True,
            collate_fn=collate,
        )
        sampler = None
    else:
        sampler = DistributedSampler(pairs, ranks, rank, seed=6)
        loader = DataLoader(pairs, 16, sampler=sampler, collate_fn=collate)
    model = DistributedDataParallel(Translator().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(3):
        if sampler:
            sampler.set_epoch(epoch)
        for n, (source, target) in enumerate(loader):
            source, target = source.to(device), target.to(device)
            logits = model(source, target[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and n % 10 == 0:
                print(f"epoch {epoch} batch {n:3d} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
