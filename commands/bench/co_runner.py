"""Work beside a job, on the machine that starts it: a co-runner."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.boards.login import is_this_machine
from rankslice.backend.launch.tether import tethered
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan

KINDS = {
    "cpu": "computes on each core of the job's ranks",
    "memory": "copies a large array, on cores that the ranks leave free if there are any",
    "network": "sends over the loopback interface, on cores that the ranks leave free likewise",
}
"""What a co-runner does."""

_PROCESS = "rankslice.commands.bench.co_runner_process"
_END_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CoRunner:
    """Processes that work."""

    processes: tuple[subprocess.Popen[str], ...]
    began_s: float

    def cores(self) -> float:
        """Return how many cores they have had on average so far."""
        used = sum(_cpu_s(process.pid) for process in self.processes)
        return used / max(1e-3, time.monotonic() - self.began_s)


@contextmanager
def co_runner(kind: str, busy: float, plan: Plan) -> Iterator[CoRunner]:
    """Have a co-runner work as long as the block lasts; it ends with this process, too.

    Args:
        kind: one of :data:`KINDS`.
        busy: which share of the time it works, from 0 to 1; 0: there is none.
        plan: of the job beside which it works.

    Raises:
        RankSliceError: no rank is on this machine, or it cannot be started.
    """
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_process(kind, busy, cores))
            for cores in (places(kind, plan) if busy else ())
        ]
        yield CoRunner(tuple(processes), time.monotonic())


def places(kind: str, plan: Plan) -> list[set[int]]:
    """Return the cores of each process of a co-runner.

    Raises:
        RankSliceError: no rank is on this machine.
    """
    here = [rank for rank in plan.ranks if is_this_machine(rank.host)]
    if not here:
        found = "works on this machine alone, and no rank of the job is here"
        raise RankSliceError(Mistake("--load", found, "run 'bench' on a board of the job"))
    usable = os.sched_getaffinity(0)
    used = {core for rank in here for core in rank.cores} & usable or usable
    if kind == "cpu":
        return [{core} for core in sorted(used)]
    return [usable - used or used]


@contextmanager
def _process(kind: str, busy: float, cores: set[int]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", _PROCESS, kind, str(busy), ",".join(map(str, sorted(cores)))]
    process = subprocess.Popen(
        tethered(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "ready\n":
            told = process.stderr.read().strip().splitlines()
            found = f"the co-runner does not start: {told[-1] if told else 'it was ended'}"
            raise RankSliceError(Mistake("--load", found))
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_END_S)
        process.kill()
        process.wait()


def _cpu_s(process: int) -> float:
    """Return the processor time of a process; 0: it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S
