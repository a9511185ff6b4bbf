"""Executors whose workers are on many nodes, as `triage --engine` takes them.

`map_profiles` takes them too, as it takes any executor of `concurrent.futures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager

from tidyprof.errors import UserError

SCHEDULER_TIMEOUT_S = 30
"""How long a Dask scheduler may take to answer."""


@contextmanager
def engine(name: str) -> Iterator[Executor | None]:
    """Yield the executor `mpi`, of all ranks of this job, or `dask=ADDRESS`, of a scheduler.

    With MPI, one rank gets the executor. The other ranks work for it and then get None. Raises
    UserError for another name, a missing package, or a scheduler that does not answer.
    """
    kind, _, address = name.partition("=")
    with ExitStack() as stack:
        try:
            if kind == "mpi":
                from mpi4py.futures import MPICommExecutor

                executor = stack.enter_context(MPICommExecutor())
            elif kind == "dask":
                from distributed import Client

                client = stack.enter_context(Client(address, timeout=SCHEDULER_TIMEOUT_S))
                executor = stack.enter_context(client.get_executor())
            else:
                raise UserError(f"--engine takes mpi or dask=ADDRESS, not {name}")
        except (ImportError, OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--engine {name}: {reason}; pip install 'tidyprof[{kind}]'") from error
        yield executor
