"""The rate of a run, and what limits it, as far as its figures show that."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..job import ALL
from ..job.strict import vars_of
from ..job.wording import digits
from .texts import frames_text
from .throughput import (
    BOTH_ROUTES,
    STEADY,
    SURGE,
    TOO_FEW,
    frames_to_fill,
    stretches,
    throughput_fps,
    too_few_text,
)
from .work import RankWork

_BUSY = 0.7
"""Share of the time per frame from which something counts as the bottleneck."""
_ALWAYS = 0.85
"""Share from which a source that reads a frame or has none to read never waits for room."""
_COUNTS = 0.1
"""Share from which a part is told, and a difference means something."""
_READS, _COMPUTES, _WRITES = "reading frames", "computing", "writing results"


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate of a run."""

    completed: int
    """How many frames came out."""
    fps: float | None
    """After the first frames; ``None``: there were too few frames to tell."""
    of: str
    """``steady state``, ``both routes`` if frames changed the route, or ``too few frames``."""
    bottleneck: str
    """A sentence."""


def pace_of(
    records: Sequence[Mapping[str, Any]],
    ranks: Sequence[RankWork],
    completed_s: NDArray[np.float64] | None,
) -> Pace:
    """Return the rate of a run.

    Args:
        records: the ranks' measurements, as the report has them.
        ranks: the same as records.
        completed_s: times of completion in seconds, in order; ``None``: they were not kept, and
            all frames that did not fail came out.
    """
    source = next(record["source"] for record in records if "source" in record)
    sink = next(record["sink"] for record in records if "sink" in record)
    switches = tuple(source.get("switches", ()))
    window = max(source["window"], source.get("surge_window") or 0)
    if completed_s is None:
        completed = source["frames"] - sink.get("failed", 0)
        wall_s = max(record["wall_s"] for record in records)
        found = completed / wall_s if wall_s else 0.0
        of = STEADY if completed > 2 * frames_to_fill(window) else ""
    else:
        completed, (found, of) = len(completed_s), throughput_fps(completed_s, window)
    if not found or of != STEADY:
        return Pace(completed, None, TOO_FEW, too_few_text(completed, window))
    found_routes = stretches(switches, completed)
    if len({route for _, _, route in found_routes}) > 1:
        text = "unknown: frames took two routes, and their results were not kept"
        if completed_s is not None:
            text = _on_most_taken(found_routes, ranks, source, completed_s)
        return Pace(completed, found, BOTH_ROUTES, text)
    on_route = _on_route(found_routes[0][2], ranks)
    return Pace(completed, found, STEADY, _bottleneck(on_route, found, source))


def _on_most_taken(
    found: Sequence[tuple[int, int, str]],
    ranks: Sequence[RankWork],
    source: Mapping[str, Any],
    completed_s: NDArray[np.float64],
) -> str:
    """Say what limits the rate on the one of two routes that most frames took."""
    frames = {route: sum(e - b for b, e, each in found if each == route) for _, _, route in found}
    most = max(frames, key=lambda route: frames[route])
    # The first frame of a stretch fills the route.
    spans = [(b, e) for b, e, route in found if route == most]
    passed_s = sum(float(completed_s[end - 1] - completed_s[begin]) for begin, end in spans)
    count = sum(end - begin - 1 for begin, end in spans)
    where = f"on the {most} route ({frames[most]} of {frames_text(len(completed_s))})"
    if passed_s <= 0:
        return f"{where} too few frames came out between two changes of the route to determine it"
    rate = count / passed_s
    loads = [_with_load(rank, rate / frames[most]) for rank in _on_route(most, ranks)]
    return f"{where}, {_bottleneck(loads, rate, source)}"


def _on_route(route: str, ranks: Sequence[RankWork]) -> Sequence[RankWork]:
    """Return ranks with what they did on a route in the place of the usual one's."""
    if route != SURGE:
        return ranks
    return [replace(rank, **vars_of(rank.surge)) if rank.surge else rank for rank in ranks]


def _with_load(rank: RankWork, rate: float) -> RankWork:
    """Return a rank with the load that it has while frames are on the route.

    Its own steady state has the time in which they were on the other one, too.
    """
    share = min(1.0, 1e-3 * rank.compute_ms["mean"] * rank.frames * rate)
    return replace(rank, steady={**(rank.steady or {}), "compute_share": share, "cpu_share": 0.0})


@dataclass(frozen=True, slots=True)
class _Load:
    """Something that may limit the rate."""

    share: float
    """Of the time in which it is busy, from 0 to 1."""
    text: str
    rank: RankWork | None = None
    """If it is a rank's core, or its computing thread."""


def _bottleneck(ranks: Sequence[RankWork], rate: float, source: Mapping[str, Any]) -> str:
    """Say what limits the rate in the steady state: a rank, a core, an end, or the world outside.

    Times are shares of the time in which a frame comes out, so none exceeds it; of a rank that
    takes turns, too, though it may take longer for a frame.
    """
    period_ms = 1e3 / rate
    of = f"of the {digits(period_ms)} ms per frame"

    def ms(share: float) -> str:
        return f"{digits(min(1.0, share) * period_ms)} ms"

    slowest = max(ranks, key=_compute_share)
    busiest = f"the busiest, {_name(slowest)}, computes {ms(_compute_share(slowest))} {of}"
    no_frame = max(_steady(rank, "no_frame_share") for rank in ranks)
    reads = max(_steady(rank, "read_share") for rank in ranks)
    outside = f"no frame has come for {ms(no_frame)} {of}"
    fps, are_listed = source["fps"], source.get("timed_by_file", False)
    if fps is not None:
        outside = f"{fps:g} frames/s arrive"
    elif are_listed:
        outside = "frames arrive at the times of --arrivals"
    from_outside = f"the source: {outside}; {busiest}"
    if no_frame >= _COUNTS and no_frame + reads >= _ALWAYS:
        return from_outside
    load = max(_loads(ranks, ms, of), key=lambda each: each.share)
    core, busy, crowd = _busiest_core(ranks)
    if busy >= _BUSY and _is_told_by_core(load, busy, crowd):
        parts = _parts(crowd, busy)
        numbers = " and ".join(str(rank.rank) for rank in crowd)
        keep = f"ranks {numbers} keep" if len(crowd) > 1 else f"rank {numbers} keeps"
        others = [f", {ms(parts[name])} {name}" for name in (_READS, _WRITES) if name in parts]
        computing = f"{ms(parts.get(_COMPUTES, 0.0))} of that computing"
        return f"{core}: {keep} it busy for {ms(busy)} {of}, {computing}{''.join(others)}"
    if load.share >= _BUSY:
        return load.text
    if are_listed or no_frame >= 1 - _BUSY or rate >= _BUSY * (fps or math.inf):
        return from_outside
    return (
        f"no rank: {busiest}; the rest is waiting for other ranks, which a larger --window may hide"
    )


def _name(rank: RankWork) -> str:
    turns = "" if rank.turns == ALL else f"; frames {rank.turns}"
    return f"rank {rank.rank} ({rank.key}{turns})"


def _loads(ranks: Sequence[RankWork], ms: Callable[[float], str], of: str) -> Iterator[_Load]:
    """Yield what each rank, the threads of source and sink, and the reader of results take."""
    faster = "would make it faster"
    reading = ["frames that are read faster"]
    if len({rank.host for rank in ranks}) > 1:
        reading.append("another --source-board")
    reading_faster = f"; {' or '.join(reading)} {faster}"
    for rank in ranks:
        parts = _parts([rank], 1.0)
        fewer = "fewer layers" if rank.turns == ALL else "fewer layers or frames"
        advice = [f"{fewer} there"] if len(ranks) > 1 and _COMPUTES in parts else []
        text = f"{_name(rank)} computes {ms(_compute_share(rank))} {of}"
        if parts.keys() - {_COMPUTES}:
            told = ", ".join(f"{ms(part)} {name}" for name, part in parts.items())
            text = f"{_name(rank)} is busy for {ms(sum(parts.values()))} {of}: {told}"
            advice += reading if _READS in parts else []
        text += f"; {' or '.join(advice)} {faster}" if advice else ""
        yield _Load(sum(parts.values()), text, rank)
        for name, thread, takes, advised in (
            ("read_share", "source", "the source: reading frames takes", reading_faster),
            ("write_share", "sink", "the sink: writing results takes", ""),
            ("not_taken_share", "sink", "the sink: whoever reads the results takes", ""),
        ):
            share = _steady(rank, name) * (thread in rank.apart)
            yield _Load(share, f"{takes} {ms(share)} {of}{advised}")


def _parts(ranks: Sequence[RankWork], whole: float) -> dict[str, float]:
    """Return in which shares of the time ranks do what with their computing thread, or only core.

    Args:
        ranks: those of a core, or one.
        whole: what the parts may be together, at most.
    """
    parts: dict[str, float] = defaultdict(float)
    for rank in ranks:
        is_one_core = len(rank.cores) == 1 and rank.accelerated is None
        parts[_COMPUTES] += _compute_share(rank)
        parts[_READS] += _steady(rank, "read_share") * (is_one_core or "source" not in rank.apart)
        parts[_WRITES] += _steady(rank, "write_share") * (is_one_core or "sink" not in rank.apart)
    total = sum(parts.values())
    scale = min(1.0, whole / total) if total else 1.0
    told = {name: scale * parts[name] for name in (_READS, _COMPUTES, _WRITES)}
    most = max(told.values())
    return {name: part for name, part in told.items() if part >= _COUNTS * most and part}


def _is_told_by_core(load: _Load, busy: float, crowd: Sequence[RankWork]) -> bool:
    """Return whether it is not a single rank, or something else, that is the busiest."""
    if load.share < _BUSY or load.rank is None or load.rank not in crowd:
        return busy > load.share + _COUNTS * (load.share >= _BUSY)
    return len(crowd) > 1 and _core_share(load.rank) < _BUSY


def _steady(rank: RankWork, name: str) -> float:
    """Return a share of the steady state, 0 to 1; 0 if there was none."""
    return min(1.0, (rank.steady or {}).get(name, 0.0))


def _compute_share(rank: RankWork) -> float:
    """Return in which part of the steady state a rank computed, 0 to 1."""
    return _steady(rank, "compute_share")


def _core_share(rank: RankWork) -> float:
    """Return in which part of the steady state a rank kept each of its cores busy, 0 to 1."""
    if not rank.steady or not rank.cores:
        return 0.0
    return min(1.0, rank.steady["cpu_share"] / len(rank.cores))


def _busiest_core(ranks: Sequence[RankWork]) -> tuple[str, float, list[RankWork]]:
    """Return the core that works most, in which part of the time (0 to 1), and its ranks."""
    load: dict[tuple[str, int], float] = defaultdict(float)
    crowd: dict[tuple[str, int], list[RankWork]] = defaultdict(list)
    for rank in ranks:
        for core in rank.cores:
            load[rank.host, core] += _core_share(rank)
            crowd[rank.host, core].append(rank)
    if not load:
        return "", 0.0, []
    host, core = max(load, key=lambda place: load[place])
    return f"core {core} of {host}", min(1.0, load[host, core]), crowd[host, core]
