"""``rankslice bench --load``: starts of a job beside a co-runner, and without it."""

from __future__ import annotations

from dataclasses import replace

from rankslice.measurement.bench.records import CoRunnerCores, Load, Start
from rankslice.session.bench.co_runner import co_runner
from rankslice.session.bench.starts import Measured, run_start
from rankslice.session.run import PreparedRun

BUSY = (0.25, 0.5, 0.75, 1.0)
"""Shares of the time for which a co-runner works."""


def beside_loads(usual: Load, kind: str, busy: tuple[float, ...]) -> list[Load]:
    """Return a load for each share of the time, and one without a co-runner.

    Args:
        usual: how frames come.
        kind: what the co-runner does, one of :data:`.co_runner.KINDS`.
        busy: shares of the time, from 0 to 1.
    """
    return [
        replace(
            usual,
            name=f"{usual.name}, {f'{kind} busy {100 * share:g} %' if share else 'alone'}",
            beside=kind,
            busy=share,
        )
        for share in sorted({0.0, *busy})
    ]


def run_beside(
    measured: Measured, prepared: PreparedRun, load: Load, *, subject: int, number: int, turn: int
) -> Start:
    """Start a job beside the co-runner of a load, whose time is not that of strangers.

    Raises:
        RankSliceError: the job or the co-runner failed.
    """
    with co_runner(load.beside, load.busy, prepared) as beside:
        start = run_start(measured, load, subject=subject, number=number, turn=turn)
        cores = beside.cores()
    noise = tuple(
        replace(each, other_cores=max(0.0, round(each.other_cores - cores.get(each.board, 0.0), 3)))
        for each in start.noise
    )
    own = tuple(CoRunnerCores(board, value) for board, value in cores.items())
    return replace(start, noise=noise, co_runner=own)
