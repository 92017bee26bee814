"""``rankslice bench --load``: a job beside a co-runner, and without it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random

from rankslice.commands.bench.bench import (
    CLOSED,
    LIVE,
    BenchOptions,
    Progress,
    check_frames,
    refuse_rates_of_camera,
)
from rankslice.commands.bench.co_runner import co_runner
from rankslice.commands.bench.starts import Measured, other_boards, run_start
from rankslice.commands.run.run import PreparedRun
from rankslice.commands.versions import versions
from rankslice.measurement.bench.intervals import check_installed
from rankslice.measurement.bench.quiet import machine_facts
from rankslice.measurement.bench.records import Bench, CoRunnerCores, Load, Start

BUSY = (0.25, 0.5, 0.75, 1.0)
"""Shares of the time for which a co-runner works."""


def bench_load(
    folder: Path,
    kind: str,
    busy: tuple[float, ...] = BUSY,
    options: BenchOptions | None = None,
    *,
    on_progress: Progress = lambda step, done, total: None,
) -> Bench:
    """Measure a job beside a co-runner that works for some shares of the time.

    In each turn the job is started once for each share, in random order, so that what changes
    slowly on the machine meets all alike. Without ``fps`` frames come as fast as they are taken,
    or as a camera makes them.

    Args:
        folder: made by ``build``.
        kind: what the co-runner does, one of :data:`.co_runner.KINDS`.
        busy: shares of the time, from 0 to 1; 0, without a co-runner, is added.
        options: how often and how long.
        on_progress: told of the progress.

    Raises:
        RankSliceError: the job cannot run or has failed, or the co-runner has.
    """
    wanted = options or BenchOptions()
    check_installed()
    live = refuse_rates_of_camera(wanted)
    measured = Measured(str(folder), folder, wanted.run_options, wanted.mpirun, wanted.ssh_config)
    subject = measured.subject
    check_frames(wanted, subject.window)
    prepared = measured.check()
    shares = sorted({0.0, *busy})
    loads = [_load(kind, share, wanted.fps, live=live) for share in shares]
    load_before, order = os.getloadavg()[0], Random(wanted.seed)
    starts: list[Start] = []
    total = wanted.starts * len(loads)
    for turn in range(wanted.starts):
        for number in order.sample(range(len(loads)), len(loads)):
            load = loads[number]
            on_progress(load.name, len(starts), total)
            starts.append(_start(measured, prepared, load, number, turn))
            on_progress(load.name, len(starts), total)
    return Bench(
        inputs=wanted.inputs,
        frames=wanted.frames,
        seed=wanted.seed,
        machine=machine_facts(versions().items(), load_before),
        boards=tuple(other_boards(prepared)),
        subjects=(subject,),
        loads=tuple(loads),
        starts=tuple(starts),
    )


def _load(kind: str, share: float, fps: float | None, *, live: bool) -> Load:
    how = LIVE if live else CLOSED if fps is None else f"{fps:g} frames/s"
    name = f"{how}, {kind} busy {100 * share:g} %" if share else f"{how}, alone"
    return Load(name, fps, is_live=live, beside=kind, busy=share)


def _start(measured: Measured, prepared: PreparedRun, load: Load, number: int, turn: int) -> Start:
    """Start the job once beside its co-runner, whose time is not that of strangers."""
    with co_runner(load.beside, load.busy, prepared) as beside:
        start = run_start(measured, load, subject=0, number=number, turn=turn)
        cores = beside.cores()
    noise = tuple(
        replace(
            each,
            other_cores=max(0.0, round(each.other_cores - cores.get(each.board, 0.0), 3)),
        )
        for each in start.noise
    )
    own = tuple(CoRunnerCores(board, value) for board, value in cores.items())
    return replace(start, noise=noise, co_runner=own)
