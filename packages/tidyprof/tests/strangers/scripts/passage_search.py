"""Search team's offline evaluation: encode queries with a small transformer, score them against a
passage index.

No training; recall at 10 against planted neighbours is reported at the end.
"""

import argparse
import logging

import torch
from instrument_me import Watch
from torch import nn
from torch.nn.functional import normalize

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("search")


class QueryEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        return normalize(self.encoder(self.tokens(ids)).mean(1), dim=-1)


@torch.inference_mode()
def evaluate(args):
    model = QueryEncoder(args.vocab, args.dim).eval()
    queries = torch.randint(args.vocab, (args.batches, args.batch_size, args.tokens))
    index = normalize(torch.randn(args.passages, args.dim), dim=-1)
    gold = torch.randint(args.passages, (args.batches, args.batch_size))
    log.info("index of %d passages, %d queries", args.passages, queries.shape[0] * queries.shape[1])

    found = torch.zeros(())
    watch = Watch()
    for ids, target in zip(queries, gold, strict=True):
        watch("encode")
        q = model(ids)
        watch("search")
        scores = q @ index.T
        top = scores.topk(args.k, dim=1).indices
        watch("recall")
        found += (top == target[:, None]).any(1).float().sum()
        watch.step()
    watch.close()
    log.info("recall@%d = %.4f", args.k, found.item() / gold.numel())


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--passages", type=int, default=60_000)
    p.add_argument("--dim", type=int, default=192)
    p.add_argument("--vocab", type=int, default=5000)
    p.add_argument("--tokens", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=48)
    p.add_argument("--batches", type=int, default=18)
    p.add_argument("--k", type=int, default=10)
    p.add_argument("--seed", type=int, default=3)
    a = p.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    evaluate(a)
