"""Processes of a benchmark on each board of a job: they end with this one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rankslice.backend.boards.login import Login
from rankslice.backend.boards.remote_process import RemoteProcess
from rankslice.backend.boards.ssh import BoardShell, on_all
from rankslice.session.run import PreparedRun

_START_S = 60.0
_PING_S = 1.0


@contextmanager
def board_processes(
    prepared: PreparedRun, action: str, answer: type, **details: Any
) -> Iterator[dict[str, RemoteProcess]]:
    """Have the agent do something on each board of a job as long as the block lasts.

    It ends with this process, and if a board does not hear of it for ten seconds.

    Args:
        prepared: the job.
        action: of the agent, which gets ``details``, and the ``cores`` of the board's ranks.
        answer: of the agent, once it has begun.

    Yields:
        The processes by name of the board; empty: this machine.

    Raises:
        RankSliceError: some boards refuse; with the reasons of all of them.
    """
    stop = threading.Event()
    with ExitStack() as stack:
        stack.callback(stop.set)
        processes = {}
        for name, shell, cores in _machines(prepared):
            process = shell.start(action, cores=cores, **details)
            processes[name] = stack.enter_context(process)
        started = [*processes.values()]
        on_all(lambda process: process.ask(answer, _START_S), started)
        threading.Thread(target=_ping, args=(started, stop), daemon=True).start()
        yield processes


def _ping(processes: Iterable[RemoteProcess], stop: threading.Event) -> None:
    """Show each second that this program is alive."""
    while not stop.wait(_PING_S):
        for process in processes:
            process.write(b"\n")


def _machines(prepared: PreparedRun) -> Iterator[tuple[str, BoardShell, list[int]]]:
    """Yield the name of each board, empty for this machine, its shell, and its ranks' cores."""
    ranks = prepared.plan.ranks
    if prepared.boards is None:
        here = BoardShell(Login(prepared.own_board, "localhost"))
        yield "", here, sorted({core for rank in ranks for core in rank.cores})
        return
    for shell, _ in prepared.boards.checked:
        board = shell.login.board
        cores = {core for rank in ranks if rank.board == board for core in rank.cores}
        yield "" if shell.is_here else board, shell, sorted(cores)
