"""A simulated job, printed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from rankslice.backend.runtime.job import ALL
from rankslice.backend.runtime.summary.rates import latency_text, rate_text
from rankslice.exploration.simulator.simulation import RankUse
from rankslice.framework.wording import fixed_text, percent_text
from rankslice.measurement.trace.journeys import longest_journeys
from rankslice.measurement.trace.path import steady_span, whole_span
from rankslice.measurement.trace.trace_findings import findings
from rankslice.session.exploring.simulate import Simulated
from rankslice.views.content import Table
from rankslice.views.run_parts import numbers_text, route_texts
from rankslice.views.terminal import show
from rankslice.views.trace_page import drawing_notes, trace_page
from rankslice.views.trace_timeline import timeline

_MAX_RANKS = 40
_MAX_LINKS = 16


def simulated_page(simulated: Simulated) -> str:
    """Return the page of the trace that the ranks would leave, as an HTML document.

    Raises:
        RankSliceError: no frame came out.
    """
    simulation = simulated.simulation
    windows = simulation.window, simulation.surge_window
    taken, stretch = longest_journeys(simulation.trace, *windows)
    shown = findings(taken, steady_span(taken) or whole_span(taken))
    drawn = timeline(shown)
    left_out = drawing_notes(drawn, stretch, "the longest series")
    notes = ("simulated: no rank has run", *left_out, *simulated.notes)
    return trace_page(shown, drawn, (simulated.busiest, *shown.waits), notes)


def print_simulation(simulated: Simulated, console: Console) -> None:
    show(console, _rank_table(simulated), *_lines(simulated))


def _lines(simulated: Simulated) -> Iterator[str]:
    simulation = simulated.simulation
    for link in simulation.links[:_MAX_LINKS]:
        way = "leave" if link.is_outgoing else "reach"
        yield (
            f"{link.messages} messages {way} {link.board}:"
            f" the link is busy for {percent_text(link.utilisation)} of the time"
        )
    rate = simulation.throughput_fps if simulation.is_steady else None
    windows = simulation.window, simulation.surge_window
    yield rate_text(simulation.completed, rate, simulation.rate_of, *windows)
    if simulation.surge_window is not None:
        yield from route_texts(simulation.completed, simulation.on_surge, simulation.switches)
    if simulation.waiting_max:
        yield (
            f"{simulation.waiting_mean:.1f} frames wait at the source on average,"
            f" {simulation.waiting_max} at most"
        )
    if dropped := simulation.dropped:
        yield (
            f"{len(dropped)} arrivals find no room, at which a run fails unless"
            f" --overflow drop is given: {numbers_text(dropped)}"
        )
    yield latency_text(simulation.latency_ms)
    yield f"bottleneck: {simulated.busiest}"
    yield from (f"note: {note}" for note in simulated.notes)


def _rank_table(simulated: Simulated) -> Table:
    """Return a row for each rank; of very many the busiest."""
    ranks = simulated.simulation.ranks
    busiest = sorted(ranks, key=lambda rank: -rank.utilisation)[:_MAX_RANKS]
    shown = ranks if len(ranks) <= _MAX_RANKS else busiest
    left = len(ranks) - len(shown)
    routes = simulated.plan.routes
    turns = [route for route in routes if any(rank.turns != ALL for rank in route.ranks)]
    frames = ("frames" if route is routes[0] else "surge frames" for route in turns)
    times = ("compute", "for a surge")[: len(routes)]
    head = ("rank", "accelerator", *frames, *times, "busy", "of the time", "waiting", "known by")
    rows = []
    for rank in shown:
        handled = (str(route.ranks[rank.rank].turns) for route in turns)
        rows.append((str(rank.rank), rank.key, *handled, *_figures(simulated, rank)))
    caption = (
        f"milliseconds per frame{' that the rank handles' if turns else ''};"
        " waiting: frames in the rank's slots, on average"
    )
    caption += f"; {left} ranks that are less busy are not shown" if left else ""
    return Table(caption, head, tuple(rows))


def _figures(simulated: Simulated, rank: RankUse) -> tuple[str, ...]:
    times = iter(simulated.times)
    by_route = [
        [time for s, time in zip(route.segments, times, strict=False) if s.rank == rank.rank]
        for route in simulated.plan.routes
    ]
    sources = dict.fromkeys(t.source.rpartition(": ")[2] for own in by_route for t in own)
    return (
        *(fixed_text(1e3 * sum(t.seconds for t in own)) if own else "-" for own in by_route),
        fixed_text(rank.busy_ms),
        percent_text(rank.utilisation),
        fixed_text(rank.queue_mean, 1),
        ", ".join(sources),
    )
