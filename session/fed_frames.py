"""Frames that this machine has fed to a job, and what came of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rankslice.backend.runtime.figures.histogram import Histogram
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.summary.rates import throughput_fps
from rankslice.measurement.board_history import HardwareSummary
from rankslice.measurement.summary import RunSummary, summarise
from rankslice.session.fail_over import Restart
from rankslice.session.keeper.frame_keeper import FailedFrameError


@dataclass
class FedFrames:
    """Frames that were fed to a job and those that took over, and what came of them."""

    window: int = 0
    arrivals: list[int] = field(default_factory=list)
    """By frame: its number in the source."""
    arrived_s: array[float] = field(default_factory=lambda: array("d"))
    completed_s: array[float] = field(default_factory=lambda: array("d"))
    """By frame, failed ones included: when its result came."""
    failed: dict[int, FailedFrameError] = field(default_factory=dict)
    dropped: Sequence[int] = ()
    more_dropped: int = 0
    restarts: tuple[Restart, ...] = ()

    def arrivals_of(self, frames: Sequence[int]) -> list[int]:
        return [self.arrivals[frame] for frame in frames]

    def summary(
        self, ranks: Sequence[RankFigures], hardware: Sequence[HardwareSummary]
    ) -> RunSummary:
        """Summarise the frames as seen here, with the ranks of the last job, if it reported."""
        completed = np.delete(np.asarray(self.completed_s), list(self.failed))
        latencies = Histogram()
        for frame, (arrived, came) in enumerate(
            zip(self.arrived_s, self.completed_s, strict=False)
        ):
            if frame not in self.failed:
                latencies.add(came - arrived)
        fps, of = throughput_fps(completed, self.window) if len(completed) else (0.0, "no frames")
        last = summarise(ranks, None, hardware) if ranks else _without_ranks(tuple(hardware))
        return replace(
            last,
            frames=len(self.arrived_s),
            completed=len(completed),
            dropped=tuple(self.dropped),
            more_dropped=self.more_dropped,
            failed=len(self.failed),
            failures=tuple(map(str, self.failed.values())),
            window=self.window,
            throughput_fps=fps,
            throughput_of=of,
            latency_ms=latencies.summary_ms(),
            latency_counts=latencies.counts_ms(),
        )

    def with_recovery(self, restarts: Sequence[Restart]) -> tuple[Restart, ...]:
        """Return restarts with the time from the last result before each to the next one."""
        times = self.completed_s
        return tuple(
            replace(restart, recovered_s=times[number] - times[number - 1])
            if 0 < (number := restart.completed) < len(times)
            else restart
            for restart in restarts
        )


def _without_ranks(hardware: tuple[HardwareSummary, ...]) -> RunSummary:
    no_times = Histogram().summary_ms()
    return RunSummary(
        frames=0,
        completed=0,
        dropped=(),
        window=0,
        throughput_fps=None,
        throughput_of="",
        latency_ms=no_times,
        preprocess_ms=no_times,
        postprocess_ms=no_times,
        ranks=(),
        bottleneck="unknown, as the last job failed after its last result",
        hardware=hardware,
    )
