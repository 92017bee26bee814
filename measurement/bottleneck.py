"""What limits the rate of a run, as far as its figures show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.quantities import frames_text
from rankslice.framework.turns import ALL
from rankslice.measurement.stretches import SURGE, stretches

if TYPE_CHECKING:
    from rankslice.measurement.summary import RankSummary

_BUSY = 0.7
"""Share of the time per frame from which something counts as the bottleneck."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How frames come; without both as fast as they are taken."""

    fps: float | None = None
    """By the clock, so many per second."""
    are_listed: bool = False
    """At times that a file says."""

    @staticmethod
    def of(source: Mapping[str, Any]) -> Arrivals:
        """Return them from what the source's rank reports."""
        return Arrivals(source["fps"], source.get("timed_by_file", False))


def bottleneck_of_routes(
    ranks: Sequence[RankSummary],
    rate: float,
    arrivals: Arrivals,
    switches: Sequence[Mapping[str, Any]],
    completed_s: NDArray[np.float64],
) -> str:
    """Say what limits the rate; if frames changed the route, on the one that most of them took.

    Args:
        ranks: what they did.
        rate: of all frames, in the steady state.
        arrivals: how frames came.
        switches: changes of the route.
        completed_s: times of completion in seconds, in order.
    """
    found = stretches(switches, len(completed_s))
    frames = {route: sum(e - b for b, e, each in found if each == route) for _, _, route in found}
    most = max(frames, key=lambda route: frames[route])
    on_route = [_on_surge(rank) for rank in ranks] if most == SURGE else ranks
    if len(frames) == 1:
        return _bottleneck(on_route, rate, arrivals)
    # The first frame of a stretch fills the route.
    spans = [(b, e) for b, e, route in found if route == most]
    passed_s = sum(float(completed_s[end - 1] - completed_s[begin]) for begin, end in spans)
    count = sum(end - begin - 1 for begin, end in spans)
    where = f"on the {most} route ({frames[most]} of {frames_text(len(completed_s))})"
    if passed_s <= 0:
        return f"{where} too few frames came out between two changes of the route to determine it"
    rate = count / passed_s
    loads = [_with_load(rank, rate / frames[most]) for rank in on_route]
    return f"{where}, {_bottleneck(loads, rate, arrivals)}"


def _on_surge(rank: RankSummary) -> RankSummary:
    """Return a rank with what it did on the route for a surge in the place of the usual one's."""
    surge = rank.surge
    if surge is None:
        return rank
    return replace(
        rank,
        frames=surge.frames,
        compute_ms=surge.compute_ms,
        turns=surge.turns,
        steady=surge.steady,
    )


def _with_load(rank: RankSummary, rate: float) -> RankSummary:
    """Return a rank with the load that it has while frames are on the route.

    Its own steady state has the time in which they were on the other one, too.

    Args:
        rank: what it did on the route.
        rate: of the route's frames, over their number.
    """
    share = min(1.0, 1e-3 * rank.compute_ms["mean"] * rank.frames * rate)
    return replace(rank, steady={"compute_share": share, "cpu_share": 0.0})


def _bottleneck(ranks: Sequence[RankSummary], rate: float, arrivals: Arrivals) -> str:
    """Say what limits the rate in the steady state: a rank, a core that ranks share, or the frames.

    Times are shares of the time in which a frame comes out, so none exceeds it; of a rank that
    takes turns, too, though it may take longer for a frame.
    """
    period_ms = 1e3 / rate
    slowest = max(ranks, key=_compute_share)
    turns = "" if slowest.turns == ALL else f"; frames {slowest.turns}"
    where = f"rank {slowest.rank} ({slowest.key}{turns})"
    share = f"{_compute_share(slowest) * period_ms:.3g} ms of the {period_ms:.3g} ms per frame"
    core, busy, crowd = _busiest_core(ranks)
    is_crowded = len(crowd) > 1 and busy >= _BUSY and _core_share(slowest) < _BUSY
    if _compute_share(slowest) >= _BUSY and not is_crowded:
        fewer = "fewer layers" if slowest.turns == ALL else "fewer layers or frames"
        advice = f"; {fewer} there would make it faster" if len(ranks) > 1 else ""
        return f"{where} computes {share}{advice}"
    fps = arrivals.fps
    if fps is not None and rate >= _BUSY * fps:
        return f"the source: {fps:g} frames/s arrive; the busiest, {where}, computes {share}"
    if busy >= _BUSY:
        computing = min(busy, sum(map(_compute_share, crowd)))
        ranks_keep = f"rank {crowd[0].rank} keeps"
        if len(crowd) > 1:
            ranks_keep = f"ranks {' and '.join(str(rank.rank) for rank in crowd)} keep"
        return (
            f"{core}: {ranks_keep} it busy for {busy * period_ms:.3g} ms of the"
            f" {period_ms:.3g} ms per frame, {computing * period_ms:.3g} ms of that computing"
        )
    if arrivals.are_listed:
        return (
            "the source: frames arrive at the times of --arrivals; the busiest,"
            f" {where}, computes {share}"
        )
    return (
        f"no rank: the busiest, {where}, computes {share}; the rest is waiting for the source or"
        " for other ranks, which a larger --window may hide"
    )


def _compute_share(rank: RankSummary) -> float:
    """Return in which part of the steady state a rank computed, 0 to 1."""
    return min(1.0, rank.steady["compute_share"]) if rank.steady else 0.0


def _core_share(rank: RankSummary) -> float:
    """Return in which part of the steady state a rank kept each of its cores busy, 0 to 1."""
    if not rank.steady or not rank.cores:
        return 0.0
    return min(1.0, rank.steady["cpu_share"] / len(rank.cores))


def _busiest_core(ranks: Sequence[RankSummary]) -> tuple[str, float, list[RankSummary]]:
    """Return the core that works most, in which part of the time (0 to 1), and its ranks."""
    load: dict[tuple[str, int], float] = defaultdict(float)
    crowd: dict[tuple[str, int], list[RankSummary]] = defaultdict(list)
    for rank in ranks:
        for core in rank.cores:
            load[rank.host, core] += _core_share(rank)
            crowd[rank.host, core].append(rank)
    if not load:
        return "", 0.0, []
    host, core = max(load, key=lambda place: load[place])
    return f"core {core} of {host}", min(1.0, load[host, core]), crowd[host, core]
