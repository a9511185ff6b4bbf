# kind: libraries of torch
# truth: hooks of modules (own, global, with kwargs, always_call, state_dict), their order and count, and handles that are removed within a step
# same: exit out err left
from base import *
from torch.nn.modules import module as M
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

n, order = {}, []


def count(name):
    def f(*a, **k):
        n[name] = n.get(name, 0) + 1
        order.append(name)

    return f


hs = [
    M.register_module_forward_pre_hook(count("gpre")),
    M.register_module_forward_hook(count("gpost")),
    M.register_module_full_backward_hook(count("gback")),
    model.register_forward_pre_hook(count("pre")),
    model.register_forward_hook(count("post"), with_kwargs=True, always_call=True),
    register_optimizer_step_pre_hook(count("opre")),
    register_optimizer_step_post_hook(count("opost")),
    optimizer.register_step_pre_hook(count("own")),
]
for i in range(60):
    step()
    if i == 32:
        hs[0].remove()
        hs[5].remove()
print(n, order[:20], digest())
