"""NLP engineer: sentiment of reviews, padded to the longest of the batch, through torch.compile.

Token ids are random; the label depends on a few of them. No C++ compiler on the nodes, hence
aot_eager.
"""

import torch
import torch._dynamo
from instrument_me import Watch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(6)
torch.set_num_threads(1)
torch._dynamo.config.recompile_limit = 64

VOCAB, DIM = 4000, 128


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=0)
        self.fc1 = nn.Linear(DIM, 2 * DIM)
        self.score = nn.Linear(2 * DIM, 1)
        self.out = nn.Linear(2 * DIM, 2)

    def forward(self, ids):
        h = torch.relu(self.fc1(self.embed(ids)))
        a = self.score(h).masked_fill(ids.unsqueeze(-1) == 0, -1e9).softmax(1)
        return self.out((a * h).sum(1))


def sample_batch(n=16):
    lengths = (20 + 60 * torch.empty(n).exponential_()).long().clamp(max=400).tolist()
    seqs = [torch.randint(1, VOCAB, (k,)) for k in lengths]
    labels = torch.tensor([int((s < 200).sum() > len(s) // 20) for s in seqs])
    return pad_sequence(seqs, batch_first=True), labels


model = Sentiment()
fast_model = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
watch = Watch()
for step in range(14):
    ids, labels = sample_batch()
    watch("forward")
    loss = nn.functional.cross_entropy(fast_model(ids), labels)
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    watch("optimizer")
    optimizer.step()
    if step % 4 == 0:
        print(f"step {step} len {ids.shape[1]} loss {loss.item():.4f}")
    watch.step()
watch.close()
