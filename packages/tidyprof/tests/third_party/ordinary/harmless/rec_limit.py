# kind: recursion
# truth: the deepest chain of nested modules that works is as deep as without
# args: 0 | 32
from base import *


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x, depth):
        return self.l(x) if depth == 0 else self(x, depth - 1)


m = Tree()
o = torch.optim.SGD(m.parameters(), lr=0.1)


def train(depth):
    o.zero_grad()
    m(torch.ones(1, 4), depth).sum().backward()
    o.step()


for _ in range(int(sys.argv[1])):
    train(1)
low, high = 0, 500
while low < high:
    middle = (low + high + 1) // 2
    try:
        train(middle)
        low = middle
    except RecursionError:
        high = middle - 1
print(low)
[train(1) for _ in range(40)]
print(digest(m))
