# kind: profilers
# truth: prepare_trace early, start_trace in the middle, stop_trace late: 10 addmm, metadata is kept in the file
# args: 10 31 | 31 33 | 5 40
# same: exit out err left
# out: 10 True\n*
from base import *
from torch.profiler import ProfilerActivity, _KinetoProfile

a, b = map(int, sys.argv[1:])
p = _KinetoProfile(activities=[ProfilerActivity.CPU])
for i in range(60):
    if i == a:
        p.prepare_trace()
    if i == b:
        p.start_trace()
        p.add_metadata_json("own", '"mine"')
    if i == b + 5:
        p.stop_trace()
        p.export_chrome_trace("t.json")
    step()
t = open("t.json").read()
print({e.key: e.count for e in p.key_averages()}.get("aten::addmm"), '"own": "mine"' in t)
print(digest())
