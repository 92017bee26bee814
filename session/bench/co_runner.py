"""Work beside a job, on each of its boards: a co-runner."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from rankslice.backend.agent.jobs.co_run import TELL
from rankslice.backend.boards.answers import CoRunnerReport
from rankslice.backend.boards.login import Login
from rankslice.backend.boards.remote_process import RemoteProcess
from rankslice.backend.boards.ssh import BoardShell
from rankslice.measurement.bench.bench_records import CoRunnerCores, Load, Start
from rankslice.session.bench.starts import Measured, run_start
from rankslice.session.run import PreparedRun

KINDS = {
    "cpu": "computes on each core of the job's ranks",
    "memory": "copies a large array, on cores that the ranks leave free if there are any",
    "network": "sends over the loopback interface, on cores that the ranks leave free likewise",
}

_START_S = 60.0
_ANSWER_S = 30.0
_PING_S = 1.0


@dataclass(frozen=True, slots=True)
class CoRunner:
    processes: Mapping[str, RemoteProcess]
    """By name of the board; empty: this machine."""

    def cores(self) -> dict[str, float]:
        """Ask for the mean number of cores that they have had so far, by board."""
        for process in self.processes.values():
            process.write(TELL + b"\n")
        return {
            board: round(process.ask(CoRunnerReport, _ANSWER_S).cores, 3)
            for board, process in self.processes.items()
        }

    def ping(self, stop: threading.Event) -> None:
        """Show each second that this program is alive."""
        while not stop.wait(_PING_S):
            for process in self.processes.values():
                process.write(b"\n")


@contextmanager
def co_runner(kind: str, busy: float, prepared: PreparedRun) -> Iterator[CoRunner]:
    """Have a co-runner work on each board of a job as long as the block lasts.

    It ends with this process, and if a board does not hear of it for ten seconds. ``busy``: share
    of the time.
    """
    stop = threading.Event()
    with ExitStack() as stack:
        stack.callback(stop.set)
        processes = {}
        for name, shell, cores in _machines(prepared) if busy else ():
            process = shell.start("co_run", kind=kind, busy=busy, cores=cores)
            processes[name] = stack.enter_context(process)
        running = CoRunner(processes)
        for process in processes.values():
            process.ask(CoRunnerReport, _START_S)
        if processes:
            threading.Thread(target=running.ping, args=(stop,), daemon=True).start()
        yield running


def _machines(prepared: PreparedRun) -> Iterator[tuple[str, BoardShell, list[int]]]:
    """Yield the name of each board, empty for this machine, its shell, and its ranks' cores."""
    ranks = prepared.plan.ranks
    if prepared.boards is None:
        here = BoardShell(Login(prepared.own_board, "localhost"))
        yield "", here, sorted({core for rank in ranks for core in rank.cores})
        return
    for shell, _ in prepared.boards.work:
        board = shell.login.board
        cores = {core for rank in ranks if rank.board == board for core in rank.cores}
        yield "" if shell.is_here else board, shell, sorted(cores)


def beside_loads(usual: Load, kind: str, busy: tuple[float, ...]) -> list[Load]:
    """Return a load for each share ``busy`` of the time, and one without a co-runner."""
    return [
        replace(
            usual,
            name=f"{usual.name}, {f'{kind} busy {100 * share:g} %' if share else 'alone'}",
            beside=kind,
            busy=share,
        )
        for share in sorted({0.0, *busy})
    ]


def run_beside(measured: Measured, prepared: PreparedRun, load: Load) -> Start:
    """Start a job beside the co-runner of a load, whose time does not count as noise.

    Raises:
        RankSliceError: the job or the co-runner failed.
    """
    with co_runner(load.beside, load.busy, prepared) as beside:
        start = run_start(measured, load)
        cores = beside.cores()
    noise = tuple(
        replace(
            noise, other_cores=max(0.0, round(noise.other_cores - cores.get(noise.board, 0.0), 3))
        )
        for noise in start.noise
    )
    own = tuple(CoRunnerCores(board, value) for board, value in cores.items())
    return replace(start, noise=noise, co_runner=own)
