"""Whether machines were quiet while something was measured, as far as their kernels tell."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rankslice.backend.runtime.system.cores import (
    governor_of,
    processor,
    processor_times,
    throttle_counters,
)
from rankslice.backend.runtime.system.files import ROOT, number_in
from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.framework.wording import percent_text
from rankslice.measurement.bench.bench_records import Bench, BoardFacts, Machine, Noise
from rankslice.measurement.board_history import BoardHistory

LIVE_NOTE = "frames of a camera differ from start to start: part of a difference may be the scene's"
MAX_OTHER_CORES = 0.2
"""Processor time of others over time from which a start was disturbed. A job's watchdog, mpirun's
daemon and what ssh needs are among them."""
MAX_STEAL = 0.01
_MAX_LOAD = 0.3
"""Processes that could run, per core, before the first start."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What the kernel has counted so far."""

    at_s: float
    busy_s: float
    """Processor time of all processes of the machine."""
    own_s: float
    """Of this process and those it has waited for."""
    steal_s: float
    throttled: int


def read_counters(root: Path = ROOT) -> Counters:
    """Return the counters now; those that the system does not have are 0."""
    busy, steal = processor_times(root) or (0.0, 0.0)
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    throttled = sum(number_in(file) or 0 for file in throttle_counters("core", root))
    return Counters(time.monotonic(), busy, own, steal, throttled)


def noise_between(before: Counters, after: Counters) -> Noise:
    return _noise("", os.cpu_count() or 1, before, after)


def noise_of(history: BoardHistory, cores: int) -> Noise | None:
    """Return the noise of a board beside its ranks; ``None``: no two samples have all ranks."""
    series = {name: np.array(values) for name, values in history.series.items()}
    ranks = [values for name, values in series.items() if name.startswith("cpu_s.rank")]
    if not ranks or "processor_busy_s" not in series:
        return None
    own = np.sum(ranks, axis=0)
    known = np.flatnonzero(np.isfinite(own + series["processor_busy_s"]))
    if len(known) < 2:
        return None

    def at(place: int) -> Counters:
        sample = {name: float(np.nan_to_num(values[place])) for name, values in series.items()}
        return Counters(
            at_s=1e-9 * history.times_ns[place],
            busy_s=sample["processor_busy_s"],
            own_s=float(own[place]),
            steal_s=sample.get("processor_steal_s", 0.0),
            throttled=int(sample.get("throttle_count.core", 0.0)),
        )

    return _noise(history.board, cores, at(known[0]), at(known[-1]))


def _noise(board: str, cores: int, before: Counters, after: Counters) -> Noise:
    seconds = max(after.at_s - before.at_s, 1e-6)
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return Noise(
        board=board,
        other_cores=round(max(0.0, others / seconds), 3),
        steal_share=round(max(0.0, (after.steal_s - before.steal_s) / seconds / cores), 4),
        throttled=max(0, after.throttled - before.throttled),
    )


def machine_facts(
    versions: Iterable[tuple[str, str]], load_before: float, mode: BoardMode
) -> Machine:
    """Describe this machine.

    ``load_before`` is the first of ``os.getloadavg()``, as ``mode`` before the first start.
    """
    return Machine(
        host=platform.node(),
        processor=processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()}",
        governor=governor_of(0),
        versions=tuple(versions),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
        mode=mode,
    )


def unquiet(bench: Bench) -> list[str]:
    """Return a clause for each disturbance; empty: all machines were quiet."""
    this = "the launcher's machine" if bench.boards else "the machine"
    machine = bench.machine
    launcher = BoardFacts("", machine.cores, machine.governor, machine.load_before)
    noises = [noise for start in bench.starts for noise in start.noise]
    is_set = any(load.frequency_mhz is not None for load in bench.loads)
    return [
        f"{f'board {board.name}' if board.name else this} was not quiet: {what}"
        for board in (launcher, *bench.boards)
        for what in disturbances(replace(board, governor="") if is_set else board, noises)
    ]


def disturbances(board: BoardFacts, noises: Iterable[Noise]) -> Iterator[str]:
    if board.load_before > _MAX_LOAD * board.cores:
        yield f"before the first start {board.load_before:.1f} processes were runnable on average"
    own = [noise for noise in noises if noise.board == board.name]
    disturbed = [noise for noise in own if any(_causes([noise]))]
    if disturbed:
        what = ", ".join(_causes(disturbed))
        yield f"{len(disturbed)} of {len(own)} starts were disturbed: {what}"
    if board.governor not in ("", "performance"):
        yield f"the governor {board.governor!r} changes the processor's frequency"


def unseen(bench: Bench) -> list[str]:
    """Return the boards of which no start tells whether they were quiet."""
    seen = {noise.board for start in bench.starts for noise in start.noise}
    return [board.name for board in bench.boards if board.name not in seen]


def _causes(noises: Sequence[Noise]) -> Iterator[str]:
    others = max(noise.other_cores for noise in noises)
    steal = max(noise.steal_share for noise in noises)
    throttled = sum(noise.throttled for noise in noises)
    if others > MAX_OTHER_CORES:
        yield f"other processes took up to {others:.1f} cores"
    if steal > MAX_STEAL:
        yield f"the hypervisor took up to {percent_text(steal)} of the processors"
    if throttled:
        yield f"cores were throttled {throttled} times"
