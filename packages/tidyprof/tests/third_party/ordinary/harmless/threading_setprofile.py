# kind: python profilers
# truth: threading.setprofile counts calls in threads that train, two after each other
# args: before | middle
# options: - | --with-stack
from base import *
import threading

n = [0]


def watch(frame, event, arg):
    if event == "call" and frame.f_code is batch.__code__:
        n[0] += 1


def work(count):
    for _ in range(count):
        step()


if sys.argv[1] == "before":
    threading.setprofile(watch)
for part in (31, 10, 40):
    t = threading.Thread(target=work, args=(part,))
    t.start()
    t.join()
    threading.setprofile(watch)
print(n, threading.getprofile() is watch, sys.getprofile() is None, digest())
