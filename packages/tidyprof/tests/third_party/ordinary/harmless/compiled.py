# Neither the frames that are compiled in vain are compared, nor how often each kind of break is met:
# a hook of optimizers changes these numbers on some releases of Python.
# kind: compiled
# truth: compiled programs have as many graphs, breaks and recompilations as without, and the same weights
# args: step eager | step aot_eager | model eager | model aot_eager | optimizer eager | both eager | loss eager | method eager | late eager | autograd eager
# options: -
# same: exit out err left
from base import *
import torch._dynamo
from torch._dynamo.utils import counters

what, backend = sys.argv[1:]
c = lambda f, **k: torch.compile(f, backend=backend, **k)
run = step
if what == "step":
    run = c(step)
elif what == "model":
    m = c(model)
    run = lambda: step(m, optimizer)
elif what == "method":
    model.compile(backend=backend)
elif what == "optimizer":
    optimizer.step = c(optimizer.step)
elif what == "both":
    m = c(model)
    s = c(optimizer.step)
    run = lambda: (optimizer.zero_grad(), m(torch.randn(8, 32)).pow(2).mean().backward(), s())
elif what == "loss":
    f = c(lambda x, y: nn.functional.cross_entropy(model(x), y))
    run = lambda: (optimizer.zero_grad(), f(*batch()).backward(), optimizer.step())
elif what == "autograd":
    torch._dynamo.config.compiled_autograd = True
    run = c(step)
for i in range(60):
    if what == "late" and i == 31:
        run = c(step)
    run()
print(
    dict(counters["stats"]),
    len(counters["graph_break"]),
    sorted(str(k)[:70] for k in counters["graph_break"]),
)
print(digest())
