"""The problem of mapping a model that was profiled."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rankslice.exploration.problem.devices import kinds_and_devices
from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem, explored_layers
from rankslice.exploration.problem.runtime_costs import FrameBytes, Overheads, default_overheads
from rankslice.exploration.times.span_times import measured_times
from rankslice.framework.engines import USUAL_ENGINE
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import Graph
from rankslice.framework.platform import Platform
from rankslice.framework.profile import OTHER_SIZES, Profile, ProfiledKind


def profiled_problem(
    profile: Profile,
    graph: Graph,
    platform: Platform,
    *,
    keys: Sequence[str] | None = None,
    default_engine: str = USUAL_ENGINE,
    overheads: Overheads | None = None,
    source: str = "profile.json",
) -> Problem:
    """Return the problem of putting a model on a platform, with times that were measured.

    Args:
        keys: mapping keys of the devices; by default those that were measured.
        default_engine: engine of CPU ranks on boards whose platform names none.
        overheads: processor time of a rank besides computing; ``None``: what is usual.

    Raises:
        RankSliceError: the profile is of another model or of other sizes, or lacks an accelerator.
    """
    names = tuple(layer.name for layer in explored_layers(graph))
    if names != profile.model.layers:
        found = f"is a profile of {profile.model.name}, whose layers are others"
        raise RankSliceError(Mistake(source, found, f"profile {graph.name}"))
    if found := profile.model.other_sizes(graph.inputs):
        raise RankSliceError(Mistake(source, found, OTHER_SIZES))
    chosen = measured_keys(profile, platform) if keys is None else tuple(keys)
    if not chosen:
        found = "measured no accelerator of these boards"
        raise RankSliceError(Mistake(source, found, "profile the model on them"))
    alike = [kind.keys for kind in profile.kinds]
    accelerators = kinds_and_devices(chosen, platform, default_engine=default_engine, alike=alike)
    kinds = accelerators[0]
    raise_mistakes(
        Mistake(source, f"no accelerator like {kind.key} was measured", "profile it, too")
        for kind in kinds
        if profile.kind_of(kind.key) is None
    )
    times = measured_times(profile, [kind.key for kind in kinds])
    problem = make_problem(
        graph,
        platform,
        times.times_s,
        accelerators=accelerators,
        spans_s=times.spans_s,
        overheads=overheads or default_overheads(kind.engine for kind in kinds),
        times_source=source,
        frame_bytes=FrameBytes(profile.seen),
    )
    return _with_measured(problem, profile)


def _with_measured(problem: Problem, profile: Profile) -> Problem:
    profiled = (profile.kind_of(kind.key) for kind in problem.kinds)
    kinds = [kind for kind in profiled if kind is not None]
    taken = [[span.memory_bytes for span in kind.spans] for kind in kinds]
    of_gpu = [[span.gpu_bytes or None for span in kind.spans] for kind in kinds]
    more, gpu = (
        np.array([_engine_bytes(*of_kind, problem) for of_kind in zip(kinds, sizes, strict=True)])
        for sizes in (taken, of_gpu)
    )
    idle_w = _idle_w(profile)
    return replace(
        problem,
        boards=tuple(
            replace(board, idle_w=idle_w[board.name], is_idle_measured=True)
            if board.name in idle_w
            else board
            for board in problem.boards
        ),
        rank_bytes=np.array([kind.rank_bytes for kind in kinds]) + np.nan_to_num(more),
        gpu_bytes=gpu,
        measured_w=np.array([active_w(kind) for kind in kinds]),
    )


def _engine_bytes(kind: ProfiledKind, taken: Sequence[int | None], problem: Problem) -> float:
    """Return the memory of a rank beyond its layers once its engine runs; NaN if not known.

    That is an accelerator's context and libraries, hundreds of megabytes for some. It is the median
    over the spans that were measured, of what they took beyond their weights and working memory.

    Args:
        taken: by each of its spans, of the board's memory or of the GPU's.
    """
    held = np.concatenate([[0], np.cumsum(problem.weight_bytes)])
    more = [
        nbytes
        - int(held[span.last + 1] - held[span.first])
        - int(problem.working_bytes[span.first : span.last + 1].max())
        for span, nbytes in zip(kind.spans, taken, strict=True)
        if nbytes is not None
    ]
    return max(0.0, statistics.median(more)) if more else float("nan")


def measured_keys(profile: Profile, platform: Platform) -> tuple[str, ...]:
    """Return the mapping keys of a platform's accelerators that were measured, board by board."""
    boards = [board.name for board in platform.boards]
    keys = [key for kind in profile.kinds for key in kind.keys]
    on_board = [(key.rpartition("_")[0], key) for key in keys]
    return tuple(key for board in boards for owner, key in on_board if owner == board)


def _idle_w(profile: Profile) -> dict[str, float]:
    """Return the power of idle boards in watts, by name, where a sensor measured it.

    Boards that are equal to one that was measured draw what that one does.
    """
    return {
        key.rpartition("_")[0]: 1e-3 * kind.board.idle_mw
        for kind in profile.kinds
        if kind.board.idle_mw is not None
        for key in kind.keys
    }


def active_w(kind: ProfiledKind) -> float:
    """Return the power above idle while a kind computes, in watts; NaN without a sensor."""
    idle_mw = kind.board.idle_mw
    energy_uj = seconds = 0.0
    for span in kind.spans:
        if span.energy_uj is not None and span.seconds is not None:
            energy_uj += span.energy_uj
            seconds += span.seconds
    if idle_mw is None or not seconds:
        return float("nan")
    return max(0.0, 1e-6 * energy_uj / seconds - 1e-3 * idle_mw)
