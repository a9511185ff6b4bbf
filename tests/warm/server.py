"""Import these modules, then fork for whoever asks: `python server.py SOCKET MODULE...`."""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn


def main() -> NoReturn:
    """Serve until standard input ends, which the parent's end brings about as well."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path, *modules = sys.argv[1:]
    listener.bind(path)
    listener.listen(64)
    print("listening", flush=True)  # who asks now waits for the imports
    for module in modules:
        import_module(module)
    gc.freeze()  # or the first collection in each copy would touch, and so copy, all of this
    clients: dict[
        int, tuple[socket.socket, int]
    ] = {}  # file descriptor of the copy's end -> client, copy's number
    while True:
        ready, _, _ = select.select(
            [0, listener, *clients, *(client for client, _ in clients.values())], [], []
        )
        if 0 in ready:
            _end(clients)
        if listener in ready:
            client, _ = listener.accept()
            if number := _fork(client):
                clients[os.pidfd_open(number)] = client, number
        for ended, (client, number) in list(clients.items()):
            if ended in ready:
                _report(client, number)
                os.close(ended)
                del clients[ended]
            elif client in ready:
                _pass_on(client, number)


def _fork(client: socket.socket) -> int:
    """Number of the copy; does not return in the copy itself."""
    message, files, _, _ = socket.recv_fds(client, 1 << 20, 3)
    if number := os.fork():
        for file in files:
            os.close(file)
        return number
    client.close()
    for place, file in enumerate(files):
        os.dup2(file, place)
    # The server's own streams go on as if its files were theirs, which can be sought in where a
    # pipe can't.
    encoding = sys.stdout.encoding
    sys.stdout = open(1, "w", buffering=1, encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", buffering=1, encoding=encoding, errors="backslashreplace", closefd=False
    )
    _become(json.loads(message))


def _become(request: dict[str, Any]) -> NoReturn:
    """Run what the client was asked to run, as if this interpreter had been started for it.

    At the end the libraries are not taken apart, which would take a second in each copy.
    """
    code = 0
    try:
        _run(request)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(request: dict[str, Any]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    _hook_in()
    words = request["arguments"]
    if words[0] == "-u":
        words = words[1:]
        sys.stdout.reconfigure(write_through=True)
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], request["folder"]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(words[0])
        runpy.run_path(words[0], run_name="__main__")


def _hook_in() -> None:
    """Put in the hooks of `tidyprof run`, which elsewhere wait for the import of torch."""
    if "TIDYPROF_RUN" in os.environ:
        first = os.path.join(os.environ["PYTHONPATH"].partition(os.pathsep)[0], "sitecustomize.py")
        runpy.run_path(first)


def _pass_on(client: socket.socket, number: int) -> None:
    """Send the copy the signals that the client has got; a client that is gone was killed."""
    for sent in client.recv(64) or bytes([signal.SIGKILL]):
        os.kill(number, sent)


def _report(client: socket.socket, number: int) -> None:
    _, status = os.waitpid(number, 0)
    with suppress(OSError):  # the client was killed
        client.send(str(os.waitstatus_to_exitcode(status)).encode())
    client.close()


def _end(clients: dict[int, tuple[socket.socket, int]]) -> NoReturn:
    for _, number in clients.values():
        os.kill(number, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
