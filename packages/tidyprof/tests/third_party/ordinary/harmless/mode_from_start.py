# kind: profilers
# truth: a dispatch mode and a function mode around all steps see the same calls (hooks add no operator)
# same: exit out err left
from base import *
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
import collections


class D(TorchDispatchMode):
    seen = collections.Counter()

    def __torch_dispatch__(self, f, t, a=(), k=None):
        D.seen[str(f)] += 1
        return f(*a, **(k or {}))


class F(TorchFunctionMode):
    seen = collections.Counter()

    def __torch_function__(self, f, t, a=(), k=None):
        F.seen[getattr(f, "__name__", str(f))] += 1
        return f(*a, **(k or {}))


with D(), F():
    for _ in range(60):
        step()
print(sorted(D.seen.items()))
print(sorted(F.seen.items()))
print(digest())
