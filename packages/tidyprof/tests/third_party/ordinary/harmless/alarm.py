# kind: exceptions of signal handlers
# truth: a handler of SIGALRM raises after the delay, counted from step 30; the program is stopped by it, or its loop was over before
# args: Timeout 0.001 | Timeout 0.003 | Runtime 0.006 | Timeout 0.01 | Runtime 0.02 | Timeout 0.03 | Custom 0.04 | Timeout 0.05 | Runtime 0.06 | Keyboard 0.07 | Timeout 0.09 | Custom 0.12 | Runtime 0.16 | Timeout 0.2 | Base 0.3 | Timeout 0.5 | Timeout 1 | Timeout 3
# plain: no
# exit: 0
# out: stopped by the time limit
from base import *


class Custom(Exception):
    pass


class Base(BaseException):
    pass


kind = {
    "Timeout": TimeoutError,
    "Runtime": RuntimeError,
    "Custom": Custom,
    "Keyboard": KeyboardInterrupt,
    "Base": Base,
}[sys.argv[1]]


def ring(*_):
    raise kind("own")


signal.signal(signal.SIGALRM, ring)
for _ in range(30):
    step()
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
try:
    until = time.time() + 6
    while time.time() < until:
        step()
    print("never stopped")
except kind as e:
    print("stopped by the time limit" if str(e) == "own" else f"another error {e}")
