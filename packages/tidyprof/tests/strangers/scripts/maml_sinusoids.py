"""Former JAX user: model-agnostic meta-learning of sine waves, everything pure functions over
pytrees.

Second-order gradients through the inner loop with torch.func.
"""

import math
from functools import partial
from itertools import pairwise

import torch
from instrument_me import Watch
from torch.func import grad, grad_and_value, vmap

torch.set_num_threads(1)


def init(gen, sizes):
    return [
        (torch.randn(m, n, generator=gen) * math.sqrt(2 / m), torch.zeros(n))
        for m, n in pairwise(sizes)
    ]


def predict(params, x):
    *hidden, (w_out, b_out) = params
    for w, b in hidden:
        x = torch.relu(x @ w + b)
    return x @ w_out + b_out


def mse(params, x, y):
    return ((predict(params, x) - y) ** 2).mean()


def sgd(params, grads, lr):
    return [(w - lr * gw, b - lr * gb) for (w, b), (gw, gb) in zip(params, grads, strict=True)]


def adapt_and_score(params, task, inner_lr):
    x_support, y_support, x_query, y_query = task
    adapted = sgd(params, grad(mse)(params, x_support, y_support), inner_lr)
    return mse(adapted, x_query, y_query)


def meta_loss(params, tasks, inner_lr=0.01):
    return vmap(partial(adapt_and_score, inner_lr=inner_lr), in_dims=(None, 0))(
        params, tasks
    ).mean()


def sample_tasks(gen, n_tasks, shots):
    amp = 0.1 + 4.9 * torch.rand(n_tasks, 1, 1, generator=gen)
    phase = math.pi * torch.rand(n_tasks, 1, 1, generator=gen)
    x = 10 * torch.rand(n_tasks, 2 * shots, 1, generator=gen) - 5
    y = amp * torch.sin(x + phase)
    return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]


def main():
    gen = torch.Generator().manual_seed(0)
    params = init(gen, [1, 256, 256, 256, 1])
    watch = Watch()
    for i in range(15):
        tasks = sample_tasks(gen, n_tasks=12, shots=100)
        watch("meta_grad")
        grads, value = grad_and_value(meta_loss)(params, tasks)
        watch("update")
        params = sgd(params, grads, 1e-3)
        if i % 5 == 0:
            print(i, float(value))
        watch.step()
    watch.close()


main()
