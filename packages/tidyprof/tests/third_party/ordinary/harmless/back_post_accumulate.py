# kind: optimizers in backward
# truth: an optimizer for each parameter steps in post-accumulate hooks
# args: 4 | 1
from base import *

opts = {p: torch.optim.SGD([p], lr=0.1) for p in list(model.parameters())[: int(sys.argv[1])]}


def take(p):
    opts[p].step()
    opts[p].zero_grad()


for p in opts:
    p.register_post_accumulate_grad_hook(take)
for _ in range(100):
    x, y = batch()
    nn.functional.cross_entropy(model(x), y).backward()
print(digest())
