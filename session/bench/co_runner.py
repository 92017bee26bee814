"""Work beside a job, on each of its boards: a co-runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rankslice.backend.agent.jobs.co_run import TELL
from rankslice.backend.boards.answers import CoRunnerReport
from rankslice.backend.boards.remote_process import RemoteProcess
from rankslice.measurement.bench.bench_records import CoRunnerCores, Load, Start
from rankslice.session.bench.board_processes import board_processes
from rankslice.session.bench.starts import Measured, run_start
from rankslice.session.run import PreparedRun

KINDS = {
    "cpu": "computes on each core of the job's ranks",
    "memory": "copies a large array, on cores that the ranks leave free if there are any",
    "network": "sends over the loopback interface, on cores that the ranks leave free likewise",
}

_ANSWER_S = 30.0


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


@contextmanager
def co_runner(kind: str, busy: float, prepared: PreparedRun) -> Iterator[CoRunner]:
    """Have a co-runner work on each board of a job as long as the block lasts.

    ``busy``: share of the time.
    """
    if not busy:
        yield CoRunner({})
        return
    with board_processes(prepared, "co_run", CoRunnerReport, kind=kind, busy=busy) as processes:
        yield CoRunner(processes)


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
