"""What limits the rate: of a run, and by the same rules of a trace, a simulation and a plan."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..figures.rank_figures import RankFigures, SourceFigures, ends_of
from ..job import ALL, Turns
from ..job.strict import vars_of
from ..job.wording import digits, joined
from .rates import (
    BOTH_ROUTES,
    STEADY,
    SURGE,
    TOO_FEW,
    frames_text,
    frames_to_fill,
    stretches,
    throughput_fps,
    too_few_text,
)

BUSY = 0.7
"""Share of the time per frame from which something counts as the bottleneck."""
_ALWAYS = 0.85
"""Share from which a source that reads a frame or has none to read never waits for room."""
_COUNTS = 0.1
"""Share from which a part is told, and a difference means something."""
READS, COMPUTES, WRITES = "reading frames", "computing", "writing results"
_READ_FASTER = "frames that are read faster"
_NO_PARTS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Something that works on frames one after the other, and may limit the rate.

    Shares are of the time, from 0 to 1.
    """

    kind: str
    """``rank``, ``core``, ``link``, ``source``, ``sink``; of a trace, see there."""
    name: str
    share: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """With what, as far as that is known."""
    phrase: str = ""
    """Instead of that, what takes the time: ``reading frames takes``."""
    ranks: tuple[int, ...] = ()
    on_core: float = 0.0
    """Share in which a rank keeps each of its cores busy; less than it computes if it waits for a
    core."""
    would_help: tuple[str, ...] = ()

    def does(self, period_ms: float) -> str:
        """Return how busy it is, of the time in which a frame comes out."""
        if self.kind in ("window", "nothing"):
            return ""
        of = f"of the {digits(period_ms)} ms per frame"

        def ms(share: float) -> str:
            return f"{digits(min(1.0, share) * period_ms)} ms"

        if self.phrase:
            return f": {self.phrase} {ms(self.share)} {of}"
        if {*self.parts} == {COMPUTES} and self.kind == "rank":
            return f" compute{'s' * (len(self.ranks) < 2)} {ms(self.share)} {of}"
        parts = ", ".join(f"{ms(share)} {name}" for name, share in self.parts.items())
        # Those of a core are not all that it does.
        before = (", of which " if self.kind == "core" else ": ") if parts else ""
        return f" is busy for {ms(self.share)} {of}{before}{parts}"

    def text(self, period_ms: float) -> str:
        helps = f"; {' or '.join(self.would_help)} would make it faster"
        return f"{self.name}{self.does(period_ms)}{helps * bool(self.would_help)}"


def busiest(loads: Iterable[Load]) -> Load:
    """Return the load that limits the rate: the busiest.

    A core counts with all that its ranks do. It is named where it is busier than any of them, or
    where they compute and wait for it by turns.
    """
    cores: list[Load] = []
    others: list[Load] = []
    for load in loads:
        (cores if load.kind == "core" else others).append(load)
    other = max(others, key=lambda load: load.share)
    if not cores:
        return other
    core = max(cores, key=lambda load: load.share)
    if core.share < BUSY:
        return other
    if other.kind == "rank" and other.share >= BUSY and {*other.ranks} <= {*core.ranks}:
        tells_more = len(core.ranks) > 1 and other.on_core < BUSY
    else:
        tells_more = core.share > other.share + _COUNTS * (other.share >= BUSY)
    return core if tells_more else other


def limit_text(loads: Iterable[Load], period_ms: float) -> str:
    load = busiest(loads)
    if load.share >= BUSY:
        return load.text(period_ms)
    return f"nothing: the busiest, {load.name},{load.does(period_ms)}"


def core_load(
    host: str,
    core: int,
    ranks: Sequence[int],
    share: float,
    parts: Mapping[str, float] = _NO_PARTS,
    names: Sequence[str] = (),
) -> Load:
    """Return the load of a core of a board by all that its ranks do, which may have names."""
    users = f"rank{'s' * (len(ranks) > 1)} {joined([str(rank) for rank in ranks])}"
    users = joined(names) or users
    name = f"core {core} of {host} ({users})"
    return Load(kind="core", name=name, share=min(1.0, share), parts=parts, ranks=tuple(ranks))


def link_load(board: str, share: float, *, is_outgoing: bool) -> Load:
    name = f"sending from {board}" if is_outgoing else f"receiving on {board}"
    return Load(kind="link", name=name, share=share)


def rank_name(rank: int, key: str, turns: Turns = ALL) -> str:
    return f"rank {rank} ({key}{f'; frames {turns}' * (turns != ALL)})"


def fewer_layers(ranks: int, turns: Turns) -> tuple[str, ...]:
    return (f"fewer layers{' or frames' * (turns != ALL)} there",) if ranks > 1 else ()


@dataclass(frozen=True, slots=True)
class Pace:
    completed: int
    fps: float | None
    """After the first frames; ``None``: there were too few frames to tell."""
    of: str
    """``steady state``, ``both routes`` if frames changed the route, or ``too few frames``."""
    bottleneck: str


def pace_of(ranks: Sequence[RankFigures], completed_s: NDArray[np.float64] | None) -> Pace:
    """Return the rate of a run.

    ``completed_s``: times of completion in seconds, in order; ``None``: they were not kept, and all
    frames that did not fail came out.
    """
    source, sink = ends_of(ranks)
    window = max(source.window, source.surge_window or 0)
    if completed_s is None:
        completed = source.frames - sink.failed
        wall_s = max(rank.wall_s for rank in ranks)
        fps = completed / wall_s if wall_s else 0.0
        of = STEADY if completed > 2 * frames_to_fill(window) else ""
    else:
        completed, (fps, of) = len(completed_s), throughput_fps(completed_s, window)
    if not fps or of != STEADY:
        return Pace(completed, None, TOO_FEW, too_few_text(completed, window))
    parts = stretches(source.switches, completed)
    if len({route for _, _, route in parts}) > 1:
        text = "unknown: frames took two routes, and their results were not kept"
        if completed_s is not None:
            text = _on_most_taken(parts, ranks, source, completed_s)
        return Pace(completed, fps, BOTH_ROUTES, text)
    return Pace(completed, fps, STEADY, _limit(_on_route(parts[0][2], ranks), fps, source))


def _on_most_taken(
    parts: Sequence[tuple[int, int, str]],
    ranks: Sequence[RankFigures],
    source: SourceFigures,
    completed_s: NDArray[np.float64],
) -> str:
    """Return what limits the rate on the one of two routes that most frames took."""
    frames: dict[str, int] = defaultdict(int)
    for begin, end, route in parts:
        frames[route] += end - begin
    most = max(frames, key=lambda route: frames[route])
    # The first frame of a stretch fills the route.
    spans = [(begin, end) for begin, end, route in parts if route == most]
    passed_s = sum(float(completed_s[end - 1] - completed_s[begin]) for begin, end in spans)
    count = sum(end - begin - 1 for begin, end in spans)
    where = f"on the {most} route ({frames[most]} of {frames_text(len(completed_s))})"
    if passed_s <= 0:
        return f"{where} too few frames came out between two changes of the route to determine it"
    rate = count / passed_s
    loaded = [_with_load(rank, rate / frames[most]) for rank in _on_route(most, ranks)]
    return f"{where}, {_limit(loaded, rate, source)}"


def _on_route(route: str, ranks: Sequence[RankFigures]) -> Sequence[RankFigures]:
    if route != SURGE:
        return ranks
    return [replace(rank, **vars_of(rank.surge)) if rank.surge else rank for rank in ranks]


def _with_load(rank: RankFigures, rate: float) -> RankFigures:
    """Return a rank with the load that it has while frames are on the route.

    Its own steady state has the time in which they were on the other one, too.
    """
    share = min(1.0, 1e-3 * rank.compute_ms["mean"] * rank.frames * rate)
    return replace(rank, steady={**(rank.steady or {}), "compute_share": share, "cpu_share": 0.0})


def _limit(ranks: Sequence[RankFigures], rate: float, source: SourceFigures) -> str:
    """Return what limits the steady rate: a rank, a core, an end, or the world outside.

    Times are shares of the time in which a frame comes out, so none exceeds it; of a rank that
    takes turns, too, though it may take longer for a frame.
    """
    period_ms = 1e3 / rate
    slowest = max(ranks, key=_compute_share)
    name = rank_name(slowest.rank, slowest.key, slowest.turns)
    computing = _compute_share(slowest)
    most = Load(kind="rank", name=name, share=computing, parts={COMPUTES: computing})
    computes = f"the busiest, {name},{most.does(period_ms)}"
    no_frame = max(_steady(rank, "no_frame_share") for rank in ranks)
    reads = max(_steady(rank, "read_share") for rank in ranks)
    outside = Load(
        kind="source", name="the source", share=no_frame, phrase="no frame has come for"
    ).text(period_ms)
    if source.fps is not None:
        outside = f"the source: {source.fps:g} frames/s arrive"
    elif source.timed_by_file:
        outside = "the source: frames arrive at the times of --arrivals"
    from_outside = f"{outside}; {computes}"
    if no_frame >= _COUNTS and no_frame + reads >= _ALWAYS:
        return from_outside
    load = busiest(_loads(ranks))
    if load.share >= BUSY:
        return load.text(period_ms)
    if (
        source.timed_by_file
        or no_frame >= 1 - BUSY
        or rate >= BUSY * (math.inf if source.fps is None else source.fps)
    ):
        return from_outside
    return (
        f"no rank: {computes}; the rest is waiting for other ranks, which a larger --window may"
        " hide"
    )


def _loads(ranks: Sequence[RankFigures]) -> Iterator[Load]:
    has_boards = len({rank.host for rank in ranks}) > 1
    reading = (_READ_FASTER, "another --source-board") if has_boards else (_READ_FASTER,)
    users: dict[tuple[str, int], list[RankFigures]] = defaultdict(list)
    for rank in ranks:
        for core in rank.cores:
            users[rank.host, core].append(rank)
        parts = _parts([rank], 1.0)
        yield Load(
            kind="rank",
            name=rank_name(rank.rank, rank.key, rank.turns),
            share=sum(parts.values()),
            parts=parts,
            ranks=(rank.rank,),
            on_core=core_share(rank),
            would_help=(
                *(fewer_layers(len(ranks), rank.turns) if COMPUTES in parts else ()),
                *(reading if READS in parts else ()),
            ),
        )
        for name, thread, phrase, would_help in (
            ("read_share", "source", "reading frames takes", reading),
            ("write_share", "sink", "writing results takes", ()),
            ("not_taken_share", "sink", "whoever reads the results takes", ()),
        ):
            share = _steady(rank, name) * (thread in rank.apart)
            yield Load(
                kind=thread,
                name=f"the {thread}",
                share=share,
                phrase=phrase,
                would_help=would_help,
            )
    for (host, core), crowd in users.items():
        share = min(1.0, sum(map(core_share, crowd)))
        yield core_load(host, core, [rank.rank for rank in crowd], share, _parts(crowd, share))


def _parts(ranks: Sequence[RankFigures], whole: float) -> dict[str, float]:
    """Return in which shares of the time ranks do what with their computing thread, or only core.

    ``whole``: what the parts may be together, at most.
    """
    parts: dict[str, float] = defaultdict(float)
    for rank in ranks:
        is_one_core = len(rank.cores) == 1 and rank.accelerated is None
        parts[READS] += _steady(rank, "read_share") * (is_one_core or "source" not in rank.apart)
        parts[COMPUTES] += _compute_share(rank)
        parts[WRITES] += _steady(rank, "write_share") * (is_one_core or "sink" not in rank.apart)
    total = sum(parts.values())
    scale = min(1.0, whole / total) if total else 1.0
    most = max(parts.values())
    return {n: scale * part for n, part in parts.items() if part >= _COUNTS * most and part}


def _steady(rank: RankFigures, name: str) -> float:
    return min(1.0, (rank.steady or {}).get(name, 0.0))


def _compute_share(rank: RankFigures) -> float:
    return _steady(rank, "compute_share")


def core_share(rank: RankFigures) -> float:
    """Return in which part of the steady state a rank kept each of its cores busy, 0 to 1."""
    if not rank.steady or not rank.cores:
        return 0.0
    return min(1.0, rank.steady["cpu_share"] / len(rank.cores))
