# kind: profilers
# truth: ExecutionTraceObserver writes as many nodes as without
# args: 5 | 31 | 32 | 33
# same: exit out err left
from base import *
import json
from torch.profiler import ExecutionTraceObserver

o = ExecutionTraceObserver().register_callback("et.json")
for _ in range(int(sys.argv[1])):
    step()
o.start()
for _ in range(4):
    step()
o.stop()
for _ in range(30):
    step()
o.start()
step()
o.stop()
o.unregister_callback()
import collections

c = collections.Counter(n["name"] for n in json.load(open("et.json"))["nodes"])
print(sorted(c.items()))
print(digest())
