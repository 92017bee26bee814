"""A whole job inside one process: each rank is a thread, messages go through the twin."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from twin import ThreadLinks

from rankslice.backend.runtime.errors import ElsewhereError
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.job import Job, Rank, Route, Send
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.rank import run_rank
from rankslice.framework.reading.read_driver import read_driver


def run_in_process(
    folder: Path,
    options: RunOptions,
    *,
    eager_bytes: int = 4096,
    direct: Collection[tuple[int, int]] | None = None,
    compress: bool = False,
) -> list[RankFigures]:
    """Run a build folder without MPI; return the measurements of all ranks, by rank.

    Everything is as under mpirun, except that ranks are not bound to their cores.

    Args:
        folder: where ``plan.json`` and the sub-models lie.
        options: of the run.
        eager_bytes: largest message that leaves its slot before the receiver takes it.
        direct: pairs of ranks, the lower one first, that share memory; ``None``: all.
        compress: whether messages are compressed.

    Raises:
        JobError: of the rank that failed first.
    """
    job = read_driver(folder / "driver.py")
    job = compressed(job) if compress else job
    links = ThreadLinks(len(job.ranks), eager_bytes=eager_bytes, direct=direct)
    results = options.results
    if results == RunOptions().results:  # not in the folder where the tests run
        results = folder / results
    options = replace(options, bind=False, results=results)
    records: list[RankFigures] = []
    failures: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        transport = links.transport(rank)
        try:
            found = run_rank(job, folder, options, transport)
        except ElsewhereError:
            pass
        except BaseException as error:
            failures[rank] = error
            transport.abort()
        else:
            records[:] = found

    threads = [
        threading.Thread(target=work, args=(spec.rank,), name=spec.key) for spec in job.ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if links.aborted_by is not None:
        raise failures[links.aborted_by]
    return records


def compressed(job: Job) -> Job:
    """Return the job with all of its messages compressed."""

    def sends(way: Rank | Route) -> tuple[Send, ...]:
        return tuple(replace(send, compress="zstd") for send in way.sends)

    ranks = (
        replace(
            rank,
            sends=sends(rank),
            surge=rank.surge and replace(rank.surge, sends=sends(rank.surge)),
        )
        for rank in job.ranks
    )
    return replace(job, ranks=tuple(ranks))
