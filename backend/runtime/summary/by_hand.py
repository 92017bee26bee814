"""What a job that a user has started by hand prints at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from ..errors import JobError
from ..figures.rank_figures import RankFigures, ends_of
from ..job import Job
from ..job.wording import time_text
from ..keeper import is_kept
from ..options import RunOptions
from ..sinks.results import Results, results_of
from .bottleneck import pace_of
from .rates import (
    are_shares,
    compute_texts,
    frames_text,
    latency_text,
    rate_text,
    scores_classes,
    top_classes,
)

_MAX_FRAMES = 10
_CLASSES = 3


def print_summary(ranks: Sequence[RankFigures], job: Job, options: RunOptions) -> None:
    """Print frames, rate, latency, what each rank did, the bottleneck, and classes.

    Called on the sink's rank, which has the results.
    """
    text = "".join(f"{line}\n" for line in _lines(ranks, job, _results(job, options)))
    with contextlib.suppress(OSError):  # whoever reads it may have gone
        os.write(1, text.encode())


def _results(job: Job, options: RunOptions) -> Results | None:
    if not is_kept(options.inputs) and options.results.is_file():
        with contextlib.suppress(JobError):
            return results_of(job, options.results, may_lack=options.skip_failed)
    return None


def _lines(ranks: Sequence[RankFigures], job: Job, results: Results | None) -> Iterator[str]:
    pace = pace_of(ranks, None if results is None else results.completed_s)
    source, sink = ends_of(ranks)
    yield rate_text(pace.completed, pace.fps, pace.of, source.window, source.surge_window)
    if sink.failed:
        yield f"{frames_text(sink.failed)} failed, without results"
    if dropped := len(source.dropped) + source.more_dropped:
        yield f"{dropped} arrivals dropped"
    if pace.completed:
        yield latency_text(source.latency_ms)
    for rank in ranks:
        computes = " and ".join(compute_texts(rank)) or "nothing"
        name = job.ranks[rank.rank].name
        yield f"{name}: computes {computes}, waits {time_text(rank.wait_ms)} per frame"
    yield f"bottleneck: {pace.bottleneck}"
    if results is not None and scores_classes(job.outputs[0]):
        yield from _classes(results)


def _classes(results: Results) -> Iterator[str]:
    """Yield the best classes of the first frames, if the first output has the share of each."""
    scores = results.values(0)
    if not all(map(are_shares, scores[:_MAX_FRAMES])):
        return
    for place, frame in enumerate(results.numbers[:_MAX_FRAMES]):
        best = top_classes(scores[place], _CLASSES)
        yield f"frame {frame}: " + ", ".join(f"{number} {score:.3f}" for number, score in best)
    if len(results) > _MAX_FRAMES:
        yield f"... and {len(results) - _MAX_FRAMES} more frames"
