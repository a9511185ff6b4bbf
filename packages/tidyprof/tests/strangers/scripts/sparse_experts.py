"""Config-dict person trying out a top-2 mixture-of-experts layer on a byte-level language model.

Includes the load-balancing loss from the Switch paper.
"""

import torch
import torch.nn.functional as fn
from instrument_me import Watch
from torch import nn

CFG = {
    "model": {
        "vocab": 256,
        "d": 192,
        "ff": 768,
        "experts": 4,
        "top_k": 2,
        "layers": 2,
        "heads": 4,
        "ctx": 128,
    },
    "train": {"batch": 8, "steps": 14, "lr": 1e-3, "aux": 0.01, "seed": 11, "log_every": 4},
}


class MoE(nn.Module):
    def __init__(self, d, ff, experts, top_k):
        super().__init__()
        self.router = nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, ff), nn.GELU(), nn.Linear(ff, d)) for _ in range(experts)
        )
        self.top_k = top_k

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        probs = self.router(x).softmax(-1)
        weight, choice = probs.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(choice == e)
            out.index_add_(0, token, expert(x[token]) * weight[token, slot, None])
        load = fn.one_hot(choice[:, 0], len(self.experts)).float().mean(0)
        self.aux = len(self.experts) * (load * probs.mean(0)).sum()
        return out.view(shape)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(c["d"]), nn.LayerNorm(c["d"])
        self.attn = nn.MultiheadAttention(c["d"], c["heads"], batch_first=True)
        self.moe = MoE(c["d"], c["ff"], c["experts"], c["top_k"])

    def forward(self, x, mask):
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.moe(self.n2(x))


class ByteLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok, self.pos = nn.Embedding(c["vocab"], c["d"]), nn.Embedding(c["ctx"], c["d"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.head = nn.Linear(c["d"], c["vocab"])
        self.register_buffer("mask", torch.full((c["ctx"], c["ctx"]), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(x), sum(layer.moe.aux for layer in self.layers)


def run(cfg):
    m, t = cfg["model"], cfg["train"]
    torch.manual_seed(t["seed"])
    text = (torch.randn(60_000).cumsum(0).mul(5).long() % m["vocab"]).abs()
    model = ByteLM(m)
    opt = torch.optim.Adam(model.parameters(), lr=t["lr"])
    watch = Watch()
    for step in range(t["steps"]):
        start = torch.randint(len(text) - m["ctx"] - 1, (t["batch"], 1)) + torch.arange(
            m["ctx"] + 1
        )
        chunk = text[start]
        watch("fwd")
        logits, aux = model(chunk[:, :-1])
        loss = fn.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten()) + t["aux"] * aux
        watch("bwd")
        opt.zero_grad()
        loss.backward()
        watch("opt")
        opt.step()
        if step % t["log_every"] == 0:
            print({"step": step, "loss": round(loss.item(), 3), "aux": round(aux.item(), 3)})
        watch.step()
    watch.close()


torch.set_num_threads(1)
run(CFG)
