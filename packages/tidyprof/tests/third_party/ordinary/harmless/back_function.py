# kind: optimizers in backward
# truth: an optimizer steps in the backward of an own autograd.Function
# args: alone | both
from base import *


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        optimizer.step()
        return g


for _ in range(70):
    x, y = batch()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model[2](Step.apply(model[1](model[0](x)))), y).backward()
    if sys.argv[1] == "both":
        optimizer.step()
print(digest())
