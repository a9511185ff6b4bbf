"""Master student: contrastive learning on two noisy views of each plankton image.

The NT-Xent loss follows the formula of the paper, anchor by anchor.
"""

import torch
import torch.nn as nn
from instrument_me import Watch

torch.manual_seed(77)
torch.set_num_threads(1)

N_SPECIES = 12
prototypes = torch.randn(N_SPECIES, 1, 32, 32)


def two_views(labels):
    base = prototypes[labels]
    return base + 0.3 * torch.randn_like(base), torch.flip(base, [-1]) + 0.3 * torch.randn_like(
        base
    )


encoder = nn.Sequential(
    nn.Conv2d(1, 24, 3, stride=2),
    nn.ReLU(),
    nn.Conv2d(24, 32, 3, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 7 * 7, 64),
)
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)


def nt_xent(z, pairs, tau=0.2):
    n = len(z)
    loss = 0.0
    for i in range(n):
        sims = torch.mv(z, z[i]) / tau
        others = torch.arange(n) != i
        positive = torch.exp(sims[pairs[i]])
        everything = torch.exp(sims[others]).sum()
        loss = loss - torch.log(positive / everything)
    return loss / n


watch = Watch()
for step in range(16):
    species = torch.randint(0, N_SPECIES, (52,))
    v1, v2 = two_views(species)
    watch("embed")
    z = nn.functional.normalize(encoder(torch.cat([v1, v2])), dim=1)
    watch("loss")
    n = len(species)
    loss = nt_xent(z, [*range(n, 2 * n), *range(n)])
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 0:
        print(f"step {step}: nt-xent {loss.item():.4f}")
    watch.step()
watch.close()
