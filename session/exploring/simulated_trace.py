"""The trace that the ranks of a simulated job would leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from rankslice.backend.runtime.figures.events import COMPUTE, READ, WAIT, WRITE
from rankslice.exploration.simulator.simulation import Event, Simulation
from rankslice.framework.plan import Plan
from rankslice.measurement.trace.journeys import Journeys, journeys, stretches_of
from rankslice.measurement.trace.trace_events import EVENTS, RankEvents, Trace


def simulated_journeys(plan: Plan, simulation: Simulation) -> Journeys:
    """Return the journeys of the frames that were traced; of two routes, those of one stretch.

    Raises:
        RankSliceError: no frame was traced.
    """
    trace = Trace(plan, tuple(_rank(simulation, rank.rank) for rank in plan.ranks))
    stretch, window = None, simulation.window
    if plan.surge is not None:
        stretch = max(stretches_of(trace), key=lambda one: one.end - one.begin, default=None)
        window = (simulation.surge_window or window) if stretch and stretch.route else window
    return journeys(trace, window, stretch)


def _rank(simulation: Simulation, rank: int) -> RankEvents:
    own = [event for event in simulation.events if event.rank == rank]
    noted = sorted([*own, *_waits(own)], key=lambda event: event.end_s)
    events = np.array(
        [
            (
                *(round(1e9 * event.begin_s), round(1e9 * event.end_s), event.frame),
                *(event.kind, event.route, event.thread, event.number),
            )
            for event in noted
        ],
        EVENTS,
    )
    return RankEvents(rank, events, 0, {})


def _waits(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the time between the steps of each thread."""
    by_thread: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in (COMPUTE, READ, WRITE):
            by_thread[event.thread].append(event)
    for thread, steps in by_thread.items():
        end_s = 0.0
        for step in sorted(steps, key=lambda step: step.begin_s):
            if step.begin_s > end_s:
                yield Event(step.rank, WAIT, end_s, step.begin_s, -1, 0, thread)
            end_s = max(end_s, step.end_s)
