"""``rankslice simulate``: what a job would show, without its boards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.setup import make_switching, queue_of
from rankslice.backend.runtime.sources.arrivals import max_in_a_second
from rankslice.backend.runtime.summary.bottleneck import (
    Load,
    core_load,
    limit_text,
    link_load,
    rank_name,
)
from rankslice.backend.runtime.summary.rates import too_few_text
from rankslice.exploration.problem.runtime_costs import (
    FrameBytes,
    LinkSpeeds,
    Overheads,
    bounds_text,
    default_overheads,
)
from rankslice.exploration.simulator.assembly import core_users, uses_its_cores
from rankslice.exploration.simulator.simulation import Simulation
from rankslice.exploration.simulator.simulator import (
    Arrivals,
    at_rate,
    jittered,
    sampled,
    simulate as simulate_plan,
)
from rankslice.exploration.times.segment_times import KnownTimes, SegmentTime, segment_times
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.plan import Plan, PlannedSegment
from rankslice.framework.platform import Board, Platform
from rankslice.framework.profile import Profile, SeenTensor
from rankslice.framework.specs.read_platform import PlatformSource, read_platform
from rankslice.framework.wording import joined, listed
from rankslice.frontend.formats import model_sha256
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.session.arriving_frames import (
    STEADY,
    USUAL,
    Variation,
    arrivals_in,
    refuse_switching,
)
from rankslice.session.build_folder import LINKS, is_build_folder, read_plan, refuse_other_folders
from rankslice.session.building.build_options import BuildOptions
from rankslice.session.building.planning import MakeMapping, other_model, plan_model, read_profile

_FRAMES = 1000
_MAX_DRAWN = 1000
"""Frames whose sizes are drawn; those after them have the same sizes again."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated job, and what it rests on."""

    plan: Plan
    times: tuple[SegmentTime, ...]
    """By segment."""
    overheads: Overheads
    simulation: Simulation
    notes: tuple[str, ...]
    """What is unknown and counted as zero."""

    @property
    def segments(self) -> tuple[PlannedSegment, ...]:
        """Of both routes, if there are two, the usual one first."""
        return tuple(segment for route in self.plan.routes for segment in route.segments)

    @property
    def busiest(self) -> str:
        """What limits the rate, in words."""
        if not self.simulation.is_steady:
            return too_few_text(self.simulation.completed, self.simulation.most_inside)
        period_ms = 1e3 / self.simulation.throughput_fps
        return limit_text(_loads(self.plan, self.simulation), period_ms)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.simulation.to_json(),
            "bottleneck": self.busiest,
            "segments": [
                {
                    "rank": segment.rank,
                    "segment": segment.index,
                    "compute_ms": 1e3 * time.seconds,
                    "source": time.source,
                }
                for segment, time in zip(self.segments, self.times, strict=True)
            ],
            "overheads": {
                "frame_ms": 1e3 * self.overheads.frame_s,
                "message_ms": 1e3 * self.overheads.message_s,
                "token_ms": 1e3 * self.overheads.token_s,
                "slice_ms": 1e3 * self.overheads.slice_s,
                "network_ns_per_byte": 1e9 * self.overheads.network_s_per_byte,
                "read_ms": 1e3 * self.overheads.read_s,
                "read_ns_per_byte": 1e9 * self.overheads.read_s_per_byte,
                "arrival_ms": 1e3 * self.overheads.arrival_s,
                "source": self.overheads.source,
            },
            "notes": list(self.notes),
        }


def simulate(
    target: Path,
    *,
    mapping: Path | MakeMapping | None = None,
    platform: PlatformSource | None = None,
    profile: Path | None = None,
    sizes: GivenSizes = NO_SIZES,
    options: RunOptions = USUAL,
    variation: Variation = STEADY,
    traced: int = 0,
) -> Simulated:
    """Return what a job would show; the same arguments give the same answer.

    Args:
        target: a folder made by ``build``, or a model file.
        mapping: of a model: which layers go where, or what makes it.
        platform: the boards and links; by default those of the folder, or of a model ``local``.
        profile: how long layers take; not needed for ranks of the ``null`` engine.
        sizes: what is given of sizes that the file leaves open.
        options: of a run: how many frames come and how, the window, and which route they take, of
            two. Without frames or arrivals there are 1000.
        traced: for how many frames from the first the events are kept.

    Raises:
        RankSliceError: a file cannot be read, or does not belong to the others; something was not
            profiled. All mistakes at once.
    """
    plan, measured = _plan(target, mapping, platform, profile, sizes)
    refuse_switching(plan, options, str(target))
    own = target / LINKS
    boards = read_platform(platform or (own if own.is_file() else "local"))
    raise_mistakes(_unknown_boards(plan, boards, platform))
    if measured is None and profile is not None:
        measured = read_profile(profile)
    source = "profile" if profile is None else profile.name
    if measured is not None:
        raise_mistakes(other_model(plan, measured, source))
    return simulate_job(
        plan, boards, KnownTimes(measured), source, options, variation, traced=traced
    )


def simulate_job(
    plan: Plan,
    boards: Platform,
    known: KnownTimes,
    source: str,
    options: RunOptions = USUAL,
    variation: Variation = STEADY,
    *,
    overheads: Overheads | None = None,
    traced: int = 0,
) -> Simulated:
    """Return what the job of a plan would show; the arguments are those of :func:`simulate`.

    ``overheads``: what the runtime takes of the cores; ``None``: what is usual.

    Raises:
        RankSliceError: an accelerator or a layer was not profiled.
    """
    times = tuple(time for route in plan.routes for time in segment_times(route, known, source))
    taken = overheads or default_overheads(rank.engine for rank in plan.ranks)
    links = LinkSpeeds(_with_boards(boards, plan))
    windows = [options.window or route.job.window for route in plan.routes]
    frames, arrivals = _arrivals(options, windows)
    random = np.random.default_rng(variation.seed)
    frame_bytes = FrameBytes([*_seen(plan, known.profile.seen)] if known.profile else ())
    sent_bytes = frame_bytes.drawn(plan.job.tensors.values(), min(frames, _MAX_DRAWN), random)
    if variation.read_ms is not None:
        taken = replace(taken, read_s=1e-3 * variation.read_ms, read_s_per_byte=0.0)
    simulation = simulate_plan(
        plan,
        [_compute_s(time, variation, frames, random) for time in times],
        links,
        frames=frames,
        arrivals=arrivals,
        window=options.window,
        overheads=taken,
        traced=traced,
        sent_bytes=sent_bytes,
        switching=make_switching(options, windows, is_timed=arrivals is not None),
    )
    notes = tuple(_notes(plan, links, frame_bytes))
    return Simulated(plan, times, taken, simulation, notes)


def _plan(
    target: Path,
    mapping: Path | MakeMapping | None,
    platform: PlatformSource | None,
    profile: Path | None,
    sizes: GivenSizes,
) -> tuple[Plan, Profile | None]:
    if is_build_folder(target):
        if mapping is not None or sizes:
            name = "--mapping" if mapping is not None else sizes.options[0]
            found = f"{target} was built with its own mapping and sizes"
            raise RankSliceError(Mistake(name, found, "give the model's file instead"))
        return read_plan(target), None
    refuse_other_folders(target)
    if mapping is None:
        if not target.exists():
            expected = "expected a model file, or a folder made by 'rankslice build'"
            raise RankSliceError(Mistake(str(target), "no such file or folder", expected))
        expected = "give a mapping file, or a folder made by 'rankslice build'"
        raise RankSliceError(Mistake("--mapping", "is missing", expected))
    options = BuildOptions(profile=profile, sizes=sizes)
    planned = plan_model(target, mapping, platform or "local", options)
    plan = planned.plan
    plan = replace(plan, model=replace(plan.model, sha256=model_sha256(planned.model.path)))
    return plan, planned.profile


def _unknown_boards(
    plan: Plan, boards: Platform, platform: PlatformSource | None
) -> Iterator[Mistake]:
    """Yield boards of the plan that a platform that was given does not have."""
    known = {board.name for board in boards.boards}
    unknown = [name for name in _board_names(plan) if name not in known]
    if unknown and platform is not None:
        found = f"has no {'board' if len(unknown) == 1 else 'boards'} {listed(unknown)}"
        yield Mistake(boards.name, found, f"the plan was made for {joined(_board_names(plan))}")


def _board_names(plan: Plan) -> list[str]:
    return list(dict.fromkeys(rank.board for rank in plan.ranks))


def _with_boards(platform: Platform, plan: Plan) -> Platform:
    known = {board.name for board in platform.boards}
    more = (Board(name, name) for name in _board_names(plan) if name not in known)
    return replace(platform, boards=(*platform.boards, *more))


def _arrivals(options: RunOptions, windows: Sequence[int]) -> tuple[int, Arrivals | None]:
    if options.arrivals is None:
        frames = _FRAMES if options.frames is None else options.frames
        if options.fps is None:
            return frames, None
        times = at_rate(frames, options.fps)
    else:
        times = arrivals_in(options.arrivals)[: options.frames]
    queue = queue_of(options, windows, max_in_a_second(times.tolist()))
    return len(times), Arrivals(times, queue)


def _compute_s(
    time: SegmentTime, variation: Variation, frames: int, random: np.random.Generator
) -> NDArray[np.float64]:
    if variation.scatter and len(time.samples) > 1:
        return sampled(time.seconds, time.samples, frames, random)
    return jittered(time.seconds, variation.jitter, frames, random)


def _seen(plan: Plan, seen: Iterable[SeenTensor]) -> Iterator[SeenTensor]:
    """Yield the sizes that frames showed, also of what is sent as another type."""
    by_name = {tensor.name: tensor for tensor in seen}
    yield from by_name.values()
    for one in plan.conversions:
        if raw := by_name.get(one.tensor):
            yield replace(raw, name=one.sent, dtype=one.dtype)


def _notes(plan: Plan, links: LinkSpeeds, frame_bytes: FrameBytes) -> Iterator[str]:
    """Yield what is counted as nothing, and what is sent between boards and counts at its bound."""
    boards = [rank.board for rank in plan.ranks]
    channels = (channel for route in plan.routes for channel in route.channels)
    sent = {(boards[c.source], boards[c.destination], c.tensor) for c in channels}
    sources = {links.described(one, other)[1] for one, other, _ in sent if one != other}
    yield from sorted(source for source in sources if "counted as nothing" in source)
    driven = [rank.key for rank in plan.ranks if rank.accelerator != "cpu" and rank.shared]
    if driven:
        yield f"how long {joined(driven)} keeps its host core busy is counted as nothing"
    crossing = {tensor for one, other, tensor in sent if one != other}
    tensors = plan.job.tensors.items()
    bounds = [name for name, tensor in tensors if name in crossing and frame_bytes.is_bound(tensor)]
    if bounds:
        yield bounds_text(bounds)


def _loads(plan: Plan, simulation: Simulation) -> Iterator[Load]:
    """Yield for how much of the time ranks, links, and cores of several ranks are busy."""
    for rank, use in zip(plan.ranks, simulation.ranks, strict=True):
        yield Load(
            kind="rank",
            name=rank_name(rank.rank, rank.key),
            share=use.utilisation,
            ranks=(rank.rank,),
            on_core=use.utilisation * uses_its_cores(rank),
        )
    for link in simulation.links:
        yield link_load(link.board, link.utilisation, is_outgoing=link.is_outgoing)
    for (board, core), ranks in core_users(plan).items():
        if len(ranks) > 1:
            share = sum(simulation.ranks[rank].utilisation for rank in ranks)
            yield core_load(board, core, ranks, share)
