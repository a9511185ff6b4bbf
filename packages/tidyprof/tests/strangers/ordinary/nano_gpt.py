"""Train a character model in the manner of nanoGPT: get_batch from a memory map, micro-steps, a
schedule of its own.
"""

import argparse
import math
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--word-level", action="store_true", help="50304 words in place of characters, short pieces"
)
parser.add_argument(
    "--compile", action="store_true", help="compile the model; pieces grow while training"
)
args = parser.parse_args()

eval_iters = 4
eval_interval = 40
log_interval = 5
gradient_accumulation_steps = 1 if args.word_level or args.compile else 4
batch_size = 1 if args.word_level else 8
block_size = 16 if args.word_level else 96
vocab_size = 50304 if args.word_level else 96
n_layer, n_head, n_embd = 2, 4, 128
learning_rate, min_lr, warmup_iters, max_iters = 1e-3, 1e-4, 10, 64 if args.compile else 80
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1337)
np.random.seed(1337)


def write_data(folder):
    rng = random.Random(1337)
    successors = [[rng.randrange(vocab_size) for _ in range(4)] for _ in range(vocab_size)]
    for split, length in (("train", 200_000), ("val", 20_000)):
        ids, token = np.empty(length, np.uint16), 0
        for n in range(length):
            token = rng.choice(successors[token])
            ids[n] = token
        ids.tofile(folder / f"{split}.bin")


def get_batch(split, length):
    data = np.memmap(data_dir / f"{split}.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - length - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + length].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + length].astype(np.int64)) for i in ix])
    if device == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(
            device, non_blocking=True
        )
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, n_head, c // n_head).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(256, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def length_at(it):
    """The whole block, or a warm-up of the length while compiled."""
    return min(block_size, 16 + it) if args.compile else block_size


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {
        split: np.mean([model(*get_batch(split, block_size))[1].item() for _ in range(eval_iters)])
        for split in ("train", "val")
    }
    model.train()
    return out


folder = tempfile.TemporaryDirectory()
data_dir = Path(folder.name)
write_data(data_dir)
raw_model = model = GPT().to(device)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1
)
if args.compile:
    print("compiling the model... (takes a moment)")
    torch._dynamo.config.recompile_limit = 128
    model = torch.compile(model, dynamic=False, backend="eager")

X, Y = get_batch("train", length_at(0))
t0 = time.time()
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num and iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
    for _ in range(gradient_accumulation_steps):
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train", length_at(iter_num))
        loss.backward()
    nn.utils.clip_grad_norm_(raw_model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    dt, t0 = time.time() - t0, time.time()
    if iter_num % log_interval == 0:
        print(
            f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}, time {dt * 1000:.2f}ms"
        )
folder.cleanup()
