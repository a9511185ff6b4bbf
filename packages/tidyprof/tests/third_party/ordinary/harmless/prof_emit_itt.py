# kind: profilers
# truth: emit_itt works wherever it begins, and twice
# args: 3 | 30 | 31 | 32 | 33 | 45
# out: done\n*
from base import *

for _ in range(int(sys.argv[1])):
    step()
with torch.autograd.profiler.emit_itt(record_shapes=True):
    for _ in range(5):
        step()
with torch.autograd.profiler.emit_itt():
    step()
print("done")
for _ in range(40):
    step()
print(digest())
