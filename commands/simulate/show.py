"""A simulated job, printed."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankslice.commands.output import new_table, print_line
from rankslice.commands.rate_texts import latency_text, numbers_text, rate_text
from rankslice.commands.simulate.simulate import Simulated
from rankslice.exploration.simulator.figures import RankUse
from rankslice.framework.turns import ALL
from rankslice.measurement.throughput import STEADY, TOO_FEW

_MAX_RANKS = 40
_MAX_LINKS = 16


def print_simulation(simulated: Simulated, console: Console) -> None:
    """Print what each rank and link did, rate and latency, and what limits them."""
    simulation = simulated.simulation
    console.print(_rank_table(simulated))
    for link in simulation.links[:_MAX_LINKS]:
        way = "leave" if link.is_outgoing else "reach"
        console.print(
            f"{link.messages} messages {way} {escape(link.board)}:"
            f" the link is busy for {100 * link.utilisation:.0f} % of the time"
        )
    rate = simulation.throughput_fps if simulation.is_steady else None
    of = STEADY if simulation.is_steady else TOO_FEW
    console.print(rate_text(simulation.completed, rate, of, simulation.window))
    if simulation.waiting_max:
        console.print(
            f"{simulation.waiting_mean:.1f} frames wait at the source on average,"
            f" {simulation.waiting_max} at most"
        )
    if dropped := simulation.dropped:
        print_line(
            console,
            f"{len(dropped)} arrivals find no room, at which a run fails unless"
            f" --overflow drop is given: {numbers_text(dropped)}",
        )
    console.print(latency_text(simulation.latency_ms))
    print_line(console, f"bottleneck: {simulated.busiest}")
    for note in simulated.notes:
        print_line(console, f"note: {note}")


def _rank_table(simulated: Simulated) -> Table:
    """Return a row for each rank; of very many the busiest."""
    ranks = simulated.simulation.ranks
    busiest = sorted(ranks, key=lambda rank: -rank.utilisation)[:_MAX_RANKS]
    shown = ranks if len(ranks) <= _MAX_RANKS else busiest
    left = len(ranks) - len(shown)
    in_turn = any(rank.turns != ALL for rank in simulated.plan.ranks)
    of_time = "of the\ntime" if in_turn else "of the time"
    columns = ("compute", "busy", of_time, "waiting", "known by")
    first = ("rank", "accelerator", *(("frames",) if in_turn else ()))
    table = new_table(
        (*first, *columns),
        right=range(len(first), len(first) + 4),
        caption=f"milliseconds per frame{' that the rank handles' if in_turn else ''};"
        " waiting: frames in the rank's slots, on average"
        + (f"; {left} ranks that are less busy are not shown" if left else ""),
    )
    for rank in shown:
        turns = (str(simulated.plan.ranks[rank.rank].turns),) if in_turn else ()
        table.add_row(str(rank.rank), escape(rank.key), *turns, *_figures(simulated, rank))
    return table


def _figures(simulated: Simulated, rank: RankUse) -> tuple[str, ...]:
    own = [
        time
        for segment, time in zip(simulated.plan.segments, simulated.times, strict=True)
        if segment.rank == rank.rank
    ]
    sources = dict.fromkeys(time.source.rpartition(": ")[2] for time in own)
    return (
        f"{1e3 * sum(time.seconds for time in own):.2f}",
        f"{rank.busy_ms:.2f}",
        f"{100 * rank.utilisation:.0f} %",
        f"{rank.queue_mean:.1f}",
        escape(", ".join(sources)),
    )
