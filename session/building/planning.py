"""From files to a plan: what ``build`` writes, and ``inspect`` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from rankslice.backend.runtime.job import Rank
from rankslice.exploration.times.segment_times import KnownTimes
from rankslice.exploration.times.turn_weights import ChosenWeights, unweighted, weigh
from rankslice.framework.errors import (
    CollectedMistakes,
    Mistake,
    RankSliceError,
    nearest,
    raise_mistakes,
)
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Assignment, Mapping as LayerMapping, Placements
from rankslice.framework.plan import ModelInfo, Plan
from rankslice.framework.platform import Platform
from rankslice.framework.profile import Profile
from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.read_mapping import read_mapping
from rankslice.framework.specs.read_platform import PlatformSource, read_platform
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats import Model, format_of, read_model
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.formats.model_format import Arrangement
from rankslice.frontend.partition.partition import Partition, in_turns, kept, partition
from rankslice.frontend.plan.make_plan import make_plan
from rankslice.frontend.plan.surge_route import join_ranks, with_surge
from rankslice.session.building.profile_file import other_model, read_profile

MakeMapping: TypeAlias = Callable[[Graph, Platform], LayerMapping]
"""Makes a mapping for a model and its boards."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A model, and what a mapping makes of it."""

    model: Model
    partition: Partition
    plan: Plan
    warnings: tuple[str, ...]
    surge: Partition | None = None
    """What another mapping makes of it, for a surge."""
    weights: tuple[ChosenWeights, ...] = ()
    """Those of ranks in turn that a profile decided."""
    profile: Profile | None = None
    """What was measured of the model, if a file with it is given."""

    @property
    def cuts(self) -> tuple[Partition, ...]:
        """The partition of each of the plan's routes."""
        return (self.partition, *((self.surge,) if self.surge is not None else ()))


def plan_model(
    model: Path,
    mapping: Path | MakeMapping,
    platform: PlatformSource,
    *,
    where: Callable[[LayerMapping, Platform], Placements],
    surge: Path | None = None,
    profile: Path | None = None,
    sizes: GivenSizes = NO_SIZES,
    source_board: str | None = None,
    literally: bool = False,
    on_step: Callable[[str], None] = lambda step: None,
) -> Planned:
    """Return the plan for a model, a mapping and a platform; the model's hash is left empty.

    Args:
        mapping: a JSON file: accelerators and their layers; or what makes it.
        where: finds the placements of the mapping's ranks.
        sizes: what is given of sizes that the model leaves open.
        source_board: board where frames enter; that of the first layer by default.
        literally: leave normalisations of a Keras model on the ranks that the mapping says.

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    on_step("reading")
    specs = CollectedMistakes()
    loaded = specs.catch(lambda: read_model(model, sizes))
    wanted = specs.catch(lambda: read_mapping(mapping)) if isinstance(mapping, Path) else None
    other = specs.catch(lambda: read_mapping(surge)) if surge is not None else None
    boards = specs.catch(lambda: read_platform(platform))
    measured = specs.catch(lambda: read_profile(profile)) if profile is not None else None
    if loaded and boards and not isinstance(mapping, Path):
        wanted = specs.catch(lambda: mapping(loaded.graph, boards))
    if wanted and boards:
        placements = specs.catch(lambda: where(wanted, boards))
    if wanted and loaded:
        assignment = specs.catch(lambda: assign(wanted, loaded.graph))
    if other and boards:
        other_places = specs.catch(lambda: where(other, boards))
    if other and loaded:
        other_layers = specs.catch(lambda: assign(other, loaded.graph))
    specs.raise_all()
    assert loaded
    assert wanted
    assert boards
    assert placements
    assert assignment

    on_step("partitioning")
    weights: tuple[ChosenWeights, ...] = ()
    planned = _planned(loaded, placements, assignment, source_board, literally)
    if profile is not None:
        assert measured
        sha256 = file_sha256(loaded.path)
        known = replace(planned.plan, model=replace(planned.plan.model, sha256=sha256))
        raise_mistakes(other_model(known, measured, profile.name))
        times = KnownTimes(measured)
        if unweighted(wanted):
            placements, weights = weigh(wanted, placements, planned.plan, times, profile.name)
            planned = _planned(loaded, placements, assignment, source_board, literally)
    if surge is not None:
        assert other
        assert other_places
        assert other_layers
        if profile is not None and unweighted(other):
            equal = _planned(loaded, other_places, other_layers, None, literally).plan
            other_places, more = weigh(other, other_places, equal, times, profile.name)
            weights = tuple(dict.fromkeys((*weights, *more)))
        planned = _with_surge(planned, placements, other_places, other_layers, literally)
    return replace(
        planned,
        weights=weights,
        profile=measured,
        warnings=(*planned.warnings, *filter(None, (each.warning for each in weights))),
    )


def _with_surge(
    planned: Planned,
    usual: Placements,
    surge: Placements,
    assignment: Assignment,
    literally: bool,
) -> Planned:
    graph = planned.model.graph
    raise_mistakes(kept(graph, graph.layers, "segments of two routes", "build without --surge"))
    joined = join_ranks(usual, surge)
    plan = planned.plan
    cut, warnings = _cut(planned.model, surge, assignment, literally)
    cut = replace(
        cut,
        segments=tuple(replace(each, rank=joined.number[each.rank]) for each in cut.segments),
    )
    other = make_plan(
        plan.model,
        cut,
        joined.surge,
        source_rank=plan.job.source,
        sink_rank=plan.job.sink,
        idle=joined.idle,
    )
    return replace(
        planned,
        plan=with_surge(plan, joined.usual, other),
        surge=cut,
        warnings=tuple(
            dict.fromkeys((*planned.warnings, *surge.warnings, *joined.warnings, *warnings))
        ),
    )


def plan_mapping(model: Model, mapping: LayerMapping, placements: Placements) -> Planned:
    """Return the plan for a mapping of a model that was read; the model's hash is left empty.

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    return _planned(model, placements, assign(mapping, model.graph), None, literally=False)


def _planned(
    loaded: Model,
    placements: Placements,
    assignment: Assignment,
    source_board: str | None,
    literally: bool,
) -> Planned:
    cut, warnings = _cut(loaded, placements, assignment, literally)
    source = _source_rank(cut, placements.ranks, source_board)
    plan = make_plan(_model_info(loaded), cut, placements.ranks, source_rank=source)
    return Planned(loaded, cut, plan, (*placements.warnings, *loaded.graph.warnings, *warnings))


def _cut(
    loaded: Model, placements: Placements, assignment: Assignment, literally: bool
) -> tuple[Partition, tuple[str, ...]]:
    entries = {layer: entries[0] for layer, entries in assignment.entries().items()}
    arrange = Arrangement if literally else format_of(loaded.graph).arrange
    arranged = arrange(loaded.graph, entries)
    ranks = [placements.ranks_of(entry) for entry in range(len(assignment.layers))]
    cut = in_turns(partition(arranged.graph, arranged.rank_of), ranks)
    return cut, tuple(arranged.warnings)


def _model_info(model: Model) -> ModelInfo:
    graph = model.graph
    return ModelInfo(
        name=graph.name,
        sha256="",
        format=format_of(graph).submodels,
    )


def _source_rank(cut: Partition, placements: Sequence[Rank], board: str | None) -> int | None:
    """Return the rank on ``board`` that a frame reaches first."""
    if board is None:
        return None
    for segment in cut.segments:
        if placements[segment.rank].board == board:
            return segment.rank
    known = sorted({placement.board for placement in placements})
    hint = nearest(board, known) or f"ranks are on {joined(known)}"
    raise RankSliceError(Mistake("--source-board", f"no rank is on board {quoted(board)}", hint))
