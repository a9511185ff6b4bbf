# kind: profilers
# truth: _KinetoProfile records 10 addmm in 5 steps
# args: 2 | 30 | 31 | 32 | 33 | 34
# out: 10\n*
from base import *
from torch.profiler import ProfilerActivity, _KinetoProfile

for _ in range(int(sys.argv[1])):
    step()
p = _KinetoProfile(activities=[ProfilerActivity.CPU])
p.start()
for _ in range(5):
    step()
p.stop()
print({e.key: e.count for e in p.key_averages()}.get("aten::addmm"))
for _ in range(40):
    step()
print(digest())
