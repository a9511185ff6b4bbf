"""Written by a speech engineer whose utterances all have different lengths. Scores batches with a
small compiled network; every batch is padded only to its own longest utterance.
"""

import os
import shutil
import tempfile

CACHE = tempfile.mkdtemp(prefix="inductor_")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = CACHE
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
from instrument_me import Watch  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(8)
torch._dynamo.config.recompile_limit = 64


class Scorer(nn.Module):
    def __init__(self, features=80, width=256):
        super().__init__()
        self.inlet = nn.Linear(features, width)
        self.outlet = nn.Linear(width, 1)

    def forward(self, x):
        return self.outlet(nn.functional.gelu(self.inlet(x)).mean(1)).squeeze(1)


model = Scorer().eval()
score = torch.compile(model, dynamic=False)
lengths = (torch.randperm(200)[:12] + 100).tolist()
results = []

watch = Watch()
for number, length in enumerate(lengths):
    batch = torch.randn(16, length, 80)
    watch("forward")
    with torch.no_grad():
        out = score(batch)
    watch("collect")
    results.extend(torch.sigmoid(out).tolist())
    print(number, length, round(results[-1], 4))
    watch.step()
watch.close()
shutil.rmtree(CACHE, ignore_errors=True)
