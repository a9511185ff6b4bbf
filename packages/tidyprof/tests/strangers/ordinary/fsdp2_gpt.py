"""Two ranks train one model whose weights are sharded by fully_shard (torchrun --nproc-per-node 2)."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS, WIDTH, LENGTH = 400, 256, 64


class Language(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


def text(batch, generator):
    start, stride = (torch.randint(1, WORDS, (batch, 1), generator=generator) for _ in range(2))
    return (start + stride * torch.arange(LENGTH + 1)) % WORDS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=12, help="sequences a rank and step")
    args = parser.parse_args()
    kind = "cuda" if torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"]) else "cpu"
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    device = (
        torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device("cpu")
    )
    if kind == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(12)
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    model = Language().to(device)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(100):
        ids = text(args.batch, generator).to(device)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step:3d} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
