"""What the unsliced model gives for the frames of a run, each computed on one thread."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rankslice.backend.runtime.engines import EngineSettings
from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.sources import Source
from rankslice.backend.runtime.system.processes import meminfo, memory_of
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.engines import reference_engine
from rankslice.framework.plan import Plan
from rankslice.frontend.formats import find_format
from rankslice.session.build_folder import built_model
from rankslice.session.prepare import PreparedRun
from rankslice.session.verification.unsliced_parts import (
    UnslicedModel,
    UnslicedPart,
    unsliced_parts,
)

_SHARE_OF_MEMORY = 0.5
"""Of what is available, for copies of the model."""


def unsliced_outputs(
    prepared: PreparedRun,
    model: Path,
    arrivals: Sequence[int],
    job: Job | None = None,
    parts: Sequence[UnslicedPart] = (),
) -> Iterator[list[NDArray[Any]]]:
    """Yield the outputs of the unsliced model for some of a run's frames, in their order.

    Each frame is computed by an engine on one thread, as if there were no others. Several engines
    take turns, as many as there are cores and half of the free memory has room for; where a run
    leaves something for the next one, as random numbers do, a single one computes all.

    Args:
        job: with other outputs or on one route; by default that of the run.
        parts: files to run instead of the model's own, in their order.

    Yields:
        One array per model output, in the shape that it has; a later frame overwrites them.
    """
    if not arrivals:
        return
    plan, source, exact = prepared.plan, prepared.source, prepared.options.exact
    job = job or plan.job
    keeps = next((segment.facts.keeps for segment in job.segments if segment.facts.keeps), "")
    loading: list[Future[UnslicedModel]] = []
    with ExitStack() as stack:
        parts = parts or _parts(prepared, model, job, stack)
        engines = {part.format: _engine(plan, part.format) for part in parts}
        settings = EngineSettings(exact=exact)
        load = partial(UnslicedModel, parts, engines, job.inputs, job.outputs, settings, keeps)
        before = memory_of("self", "VmRSS")
        with without_info():  # LiteRT tells it once
            first = stack.enter_context(closing(load()))
        first.read(source, arrivals[0])
        first.run()
        yield first.outputs
        count = 1
        if not keeps:
            size = memory_of("self", "VmRSS") - before
            available = meminfo().get("MemAvailable", 0)
            cores = len(os.sched_getaffinity(0))
            count = most_at_once(cores, len(arrivals) - 1, size, available)
        # After the pool, whose threads may still use them.
        stack.callback(_close, loading)
        pool = stack.enter_context(ThreadPoolExecutor(count, "unsliced"))
        for _ in range(count - 1):
            loading.append(pool.submit(load))
        yield from _in_turn(pool, first, loading, source, arrivals[1:])


def _parts(
    prepared: PreparedRun, model: Path, job: Job, stack: ExitStack
) -> Sequence[UnslicedPart]:
    # Engines do not write outputs that are inputs, passed on unchanged.
    made = tuple(spec for spec in job.outputs if spec not in job.inputs)
    kind = find_format(model)
    if kind is None or kind.submodels:
        return [UnslicedPart(model, prepared.plan.model.format, job.inputs, made)]
    read = built_model(prepared.folder, prepared.plan, "verify a run")
    folder = stack.enter_context(temporary_folder()).path
    return [*unsliced_parts(read, {spec.name for spec in made}, folder, anew=False)]


def _engine(plan: Plan, submodels: str) -> str:
    """Return the engine that runs unsliced files of a format: that of the segments, if possible."""
    used = (
        segment.engine or rank.engine
        for rank in plan.ranks
        for segment in rank.all_runs
        if segment.file.endswith(f".{submodels}")
    )
    return reference_engine(submodels, used)


def _close(loading: Sequence[Future[UnslicedModel]]) -> None:
    for future in loading:
        if future.exception() is None:
            future.result().close()


def most_at_once(cores: int, frames: int, copy_bytes: int, available_bytes: int) -> int:
    """Return the number of copies that compute at once, the one that is there included."""
    room = int(_SHARE_OF_MEMORY * available_bytes / max(1, copy_bytes))
    return max(1, min(cores, frames, 1 + room))


def _in_turn(
    pool: ThreadPoolExecutor,
    first: UnslicedModel,
    loading: Sequence[Future[UnslicedModel]],
    source: Source,
    arrivals: Sequence[int],
) -> Iterator[list[NDArray[Any]]]:
    """Yield the outputs of frames in order; each is computed by any copy that has nothing to do."""
    idle = [first]
    expected = list(loading)
    computing: deque[tuple[UnslicedModel, Future[None]]] = deque()
    for arrival in arrivals:
        loaded = [future for future in expected if future.done()]
        expected = [future for future in expected if future not in loaded]
        idle += [future.result() for future in loaded]
        if not idle:
            copy, future = computing.popleft()
            future.result()
            yield copy.outputs
            idle.append(copy)
        copy = idle.pop()
        copy.read(source, arrival)
        computing.append((copy, pool.submit(copy.run)))
    for copy, future in computing:
        future.result()
        yield copy.outputs


_INFO = b"INFO: "


@contextmanager
def without_info() -> Iterator[None]:
    """Drop the lines on standard error that begin with ``INFO:``; others are printed in the end.

    LiteRT prints such lines past Python, and has no setting for them.
    """
    _flush()
    kept, log = os.dup(2), os.memfd_create("rankslice-stderr")
    try:
        os.dup2(log, 2)
        yield
    finally:
        _flush()
        os.dup2(kept, 2)
        os.close(kept)
        with os.fdopen(log, "rb") as file:
            file.seek(0)
            lines = [line for line in file if not line.startswith(_INFO)]
        os.write(2, b"".join(lines))


def _flush() -> None:
    if sys.stderr is not None:  # it is where the program was started without one
        sys.stderr.flush()
