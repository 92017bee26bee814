"""From files to a plan: what ``build`` writes, and ``inspect`` shows; profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rankslice.backend.runtime.job import Compression, Rank, Route, Send
from rankslice.exploration.times.segment_times import ChosenWeights, KnownTimes, unweighted, weigh
from rankslice.framework.engines import default_engine
from rankslice.framework.errors import (
    CollectedMistakes,
    Mistake,
    RankSliceError,
    nearest,
    raise_mistakes,
)
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.graph import Graph, Layer, Scales, Tensor
from rankslice.framework.mapping import Assignment, Mapping as LayerMapping, Placements
from rankslice.framework.plan import ModelInfo, Plan, WireConversion
from rankslice.framework.platform import Accelerator, Platform, Wire
from rankslice.framework.profile import OTHER_SIZES, Profile, profile_from_json
from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.specs.read_mapping import read_horizontal, read_mapping
from rankslice.framework.specs.read_platform import PlatformSource, read_platform
from rankslice.framework.wording import joined, listed, quoted
from rankslice.frontend.formats import Model, find_format, format_of, model_sha256, read_model
from rankslice.frontend.formats.model_format import Arrangement
from rankslice.frontend.partition.partition import Partition, in_turns, kept, partition
from rankslice.frontend.plan.make_plan import make_plan
from rankslice.frontend.plan.surge_route import join_ranks, with_surge
from rankslice.session.building.build_options import BuildOptions

if TYPE_CHECKING:
    from rankslice.frontend.rewriting.conversions import Sent
    from rankslice.frontend.rewriting.made_layers import Rewritten

FindScales: TypeAlias = Callable[[Model, Sequence[Tensor]], Mapping[str, Scales]]

Formats: TypeAlias = Sequence[Sequence[str]]
"""By entry of a mapping: the formats of its sub-models, as far as they are known."""

MakeMapping: TypeAlias = Callable[[Graph, Platform], LayerMapping]
"""Makes a mapping for a model and its boards."""


_NO_BOARDS = Platform("", ())

_MAX_PROFILE_BYTES = 256 << 20
"""A thousand layers on ten kinds of accelerators have less."""


_OF_SIZES = frozenset(("bool", "int32", "int64"))
"""Types of sizes and indices, which every accelerator leaves to the CPU or knows."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A model, and what a mapping makes of it."""

    model: Model
    partition: Partition
    plan: Plan
    warnings: tuple[str, ...]
    surge: Partition | None = None
    """What another mapping makes of it, for a surge."""
    platform: Platform = _NO_BOARDS
    weights: tuple[ChosenWeights, ...] = ()
    """Those of ranks in turn that a profile decided."""
    profile: Profile | None = None
    """What was measured of the model, if a file with it is given."""
    sent: tuple[Sent, ...] = ()
    """What crosses between boards as another type."""
    unconverted: Model | None = None
    """The model without these conversions, if there are any."""

    @property
    def cuts(self) -> tuple[Partition, ...]:
        """The partition of each of the plan's routes."""
        return (self.partition, *((self.surge,) if self.surge is not None else ()))

    def engine_mistakes(self) -> Iterable[Mistake]:
        """Find layers that the engines of their ranks cannot run."""
        find = format_of(self.model.graph).mistakes
        mistakes = (m for cut in self.cuts for m in find(self.model, cut, self.plan.ranks))
        return dict.fromkeys(mistakes)  # ranks that take turns may make the same ones

    def cut_warnings(self) -> Iterable[str]:
        find = format_of(self.model.graph).warnings
        return dict.fromkeys(warning for cut in self.cuts for warning in find(cut))


@dataclass(frozen=True, slots=True)
class _Placed:
    """A mapping, its ranks, and their layers."""

    mapping: LayerMapping
    placements: Placements
    assignment: Assignment
    group_of: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def weighed(
        self, plan: Plan, times: KnownTimes, source: str
    ) -> tuple[_Placed, tuple[ChosenWeights, ...]]:
        placements, weights = weigh(self.mapping, self.placements, plan, times, source)
        return replace(self, placements=placements), weights

    def rewritten(self, made: Rewritten) -> _Placed:
        return replace(
            self,
            assignment=made.assignment,
            group_of=made.group_of,
            warnings=(*self.warnings, *made.warnings),
        )


def place_by_formats(
    mapping: LayerMapping, boards: Platform, formats: Formats, *, share_cores: bool = True
) -> Placements:
    """Place the ranks; a CPU rank has the usual engine of its format if its board names none."""
    engines = [default_engine(of[0] if of else "") for of in formats]
    return place_ranks(mapping, boards, share_cores=share_cores, default_engine=engines)


def plan_model(
    model: Path,
    mapping: Path | LayerMapping | MakeMapping,
    platform: PlatformSource,
    options: BuildOptions,
    *,
    where: Callable[[LayerMapping, Platform, Formats], Placements] = place_by_formats,
    scales: FindScales = lambda model, tensors: {},
    on_step: Callable[[str], None] = lambda step: None,
) -> Planned:
    """Return the plan for a model, a mapping and a platform; the model's hash is left empty.

    Args:
        mapping: accelerators and their layers, in a JSON file or not; or what makes it.
        options: what planning needs of them: horizontal, surge, profile, sizes, source_board,
            literally, wire, compress.
        where: finds the placements of the mapping's ranks, by their entries' formats; by default
            ranks may share cores, and nobody checks their engines.
        scales: finds those of tensors that cross between boards as integers; without it they are 1.

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    surge, profile, literally = options.surge, options.profile, options.literally
    horizontal = options.horizontal
    on_step("reading")
    specs = CollectedMistakes()
    loaded = specs.catch(lambda: read_model(model, options.sizes))
    wanted = mapping if isinstance(mapping, LayerMapping) else None
    if isinstance(mapping, Path):
        wanted = specs.catch(lambda: read_mapping(mapping))
    other_mapping = specs.catch(lambda: read_mapping(surge)) if surge is not None else None
    splits = specs.catch(lambda: read_horizontal(horizontal)) if horizontal is not None else ()
    boards = specs.catch(lambda: read_platform(platform))
    measured = specs.catch(lambda: read_profile(profile)) if profile is not None else None
    if loaded and boards and callable(mapping):
        wanted = specs.catch(partial(mapping, loaded.graph, boards))
    # Without its splits, a mapping of AutoDiCE would be wrong as well.
    wanted = replace(wanted, splits=splits) if wanted and splits is not None else None

    if loaded and boards and wanted:
        loaded = specs.catch(partial(_for_engines, loaded, wanted, boards)) or loaded

    def placed(wanted: LayerMapping) -> _Placed | None:
        assigning = CollectedMistakes()
        layers = assigning.catch(lambda: assign(wanted, loaded.graph)) if loaded else None
        formats = _formats(model, len(wanted.entries), loaded, layers)
        placements = specs.catch(lambda: where(wanted, boards, formats)) if boards else None
        specs.catch(assigning.raise_all)
        return _Placed(wanted, placements, layers) if placements and layers else None

    usual, other = (placed(one) if one else None for one in (wanted, other_mapping))
    specs.raise_all()
    assert loaded
    assert boards
    assert usual
    if other is not None and (blocks := (*usual.assignment.blocks, *other.assignment.blocks)):
        found = "it splits layers, and a job with a second route cannot"
        raise RankSliceError(Mistake(blocks[0].where, found, "leave out --surge"))
    model_of_job, usual = _with_parts(loaded, usual)

    on_step("partitioning")
    weights: tuple[ChosenWeights, ...] = ()
    planned = _planned(model_of_job, usual, options.source_board, None, literally)
    if profile is not None:
        assert measured
        sha256 = model_sha256(model_of_job.path)
        known = replace(planned.plan, model=replace(planned.plan.model, sha256=sha256))
        raise_mistakes(other_model(known, measured, profile.name))
        times = KnownTimes(measured)
        if unweighted(usual.mapping):
            usual, weights = usual.weighed(planned.plan, times, profile.name)
            planned = _planned(model_of_job, usual, options.source_board, None, literally)
    planned = _converted(planned, usual, boards, options, scales, on_step)
    if other is not None:
        if profile is not None and unweighted(other.mapping):
            equal = _planned(model_of_job, other, None, None, literally).plan
            other, more = other.weighed(equal, times, profile.name)
            weights = tuple(dict.fromkeys((*weights, *more)))
        planned = _with_surge(planned, usual.placements, other, literally)
    planned = replace(planned, plan=_compressed(planned.plan, boards, options.compress))
    unfit = [
        pair
        for cut, route in zip(planned.cuts, planned.plan.routes, strict=True)
        for pair in _unfit_layers(cut, route.ranks, boards)
    ]
    raise_mistakes(mistake for unit, mistake in unfit if not unit.allow_fallback)
    warnings = [chosen.warning for chosen in weights if chosen.warning]
    warnings += [f"{mistake.where}: {mistake.found}: they run on the CPU" for _, mistake in unfit]
    return replace(
        planned,
        platform=boards,
        weights=weights,
        profile=measured,
        warnings=(*planned.warnings, *warnings),
    )


def _for_engines(model: Model, mapping: LayerMapping, boards: Platform) -> Model:
    """Return the model with the files that its parts have for the engines of their ranks.

    That is only of interest for parts that a mapping names as a whole.
    """
    format_of_part = {
        layer.part.name: layer.part.format for layer in model.graph.layers if layer.part
    }
    named = [[text for text in entry.layers if text in format_of_part] for entry in mapping.entries]
    if not any(named):
        return model
    formats = [[format_of_part[str(part)] for part in parts] for parts in named]
    try:
        placements = place_by_formats(mapping, boards, formats)
    except RankSliceError:
        return model  # which is said where ranks are placed in earnest
    engines = {
        str(part): {placements.ranks[rank].engine for rank in placements.ranks_of(number)}
        for number, parts in enumerate(named)
        for part in parts
    }
    fitted: Model = format_of(model.graph).for_engines(model, engines)
    return fitted


def _converted(
    planned: Planned,
    placed: _Placed,
    boards: Platform,
    options: BuildOptions,
    scales: FindScales = lambda model, tensors: {},
    on_step: Callable[[str], None] = lambda step: None,
) -> Planned:
    """Return the plan in which what crosses between boards is converted, as links or options say.

    Raises:
        RankSliceError: it cannot be.
    """
    if not ({options.wire} if options.wire else boards.wires) - {"none"}:
        return planned
    from rankslice.frontend.rewriting.conversions import Conversions, find_wires  # take their time

    def wire(board: str, other: str) -> Wire:
        link, _ = boards.link(board, other)
        return options.wire or (link.wire if link else "none")

    loaded, job = planned.model, planned.plan.job
    wires = find_wires(loaded.graph, planned.plan, placed.placements.entries, wire)
    if not wires.of:
        return replace(planned, warnings=(*planned.warnings, *wires.warnings))
    types = dict.fromkeys(wires.of.values())
    where = "--wire" if options.wire else f"{boards.name}: links"
    if options.surge is not None:
        found = f"a job with a second route cannot send {joined([*types])}"
        raise RankSliceError(Mistake(where, found, f"leave out --surge, or {_RAW}"))
    raise_mistakes(wire_mistakes(loaded, types, where))
    on_step("converting channels")
    kind = format_of(loaded.graph)
    integers = [tensor for tensor in loaded.graph.tensors if "int8" in wires.kinds(tensor.name)]
    conversions = Conversions(
        loaded.graph,
        placed.assignment,
        placed.group_of,
        wires,
        scales(loaded, integers),
    )
    wired, sent = conversions.result(), tuple(conversions.sent)
    assert kind.with_made_layers
    model: Model = kind.with_made_layers(loaded, wired.graph)
    placed = placed.rewritten(wired)
    converted = _planned(model, placed, job.source, job.sink, options.literally)
    crossing = (WireConversion(one.tensor.name, one.sent.name, one.sent.dtype) for one in sent)
    plan = replace(converted.plan, conversions=tuple(crossing))
    return replace(converted, plan=plan, sent=sent, unconverted=loaded)


def _compressed(plan: Plan, boards: Platform, compress: Compression | None) -> Plan:
    """Return the plan whose messages between boards are compressed as links or an option say."""
    if not compress and not any(boards.compresses(board.name) for board in boards.boards):
        return plan

    def sends(rank: Rank, way: Rank | Route) -> tuple[Send, ...]:
        return tuple(
            replace(send, compress=between(rank.board, plan.ranks[send.to].board))
            for send in way.sends
        )

    def between(board: str, other: str) -> Compression:
        link, _ = boards.link(board, other)
        return "none" if board == other else compress or (link.compress if link else "none")

    return plan.with_ranks(
        [
            replace(
                rank,
                sends=sends(rank, rank),
                surge=rank.surge and replace(rank.surge, sends=sends(rank, rank.surge)),
            )
            for rank in plan.ranks
        ]
    )


_RAW = "leave float32 with --wire none"


def wire_mistakes(model: Model, types: Iterable[str], where: str) -> Iterator[Mistake]:
    """Say why a model's tensors cannot cross between boards as some types."""
    kind = format_of(model.graph)
    if kind.with_made_layers is None:
        found = f"channels of .{kind.name} models cannot be converted to {joined([*types])}"
        other = f"convert the model to .{kind.submodels} first, or " if kind.submodels else ""
        yield Mistake(where, found, other + _RAW)
        return
    for dtype in types:
        if fault := kind.wire_fault(model, dtype):
            yield Mistake(where, f"{model.graph.name}: {fault}", _RAW)


def _formats(file: Path, entries: int, model: Model | None, assigned: Assignment | None) -> Formats:
    layers = model.graph.layers if model else ()
    formats = {layer.name: layer.part.format for layer in layers if layer.part}
    if assigned and formats:
        return [[*dict.fromkeys(formats[name] for name in names)] for names in assigned.layers]
    kind = find_format(file)
    return [[kind.submodels] if kind and kind.submodels else []] * entries


def _unfit_layers(
    cut: Partition, ranks: Sequence[Rank], platform: Platform
) -> Iterator[tuple[Accelerator, Mistake]]:
    """Yield the ranks with layers that make elements which their accelerator does not take."""
    boards = {board.name: board for board in platform.boards}
    for rank in ranks:
        unit = boards[rank.board].accelerator(rank.accelerator) if rank.board in boards else None
        if unit is None or not unit.types:
            continue
        unfit = {
            layer.name: kinds
            for layer in cut.layers_of(rank.rank)
            if (kinds := _other_types(layer, unit))
        }
        if unfit:
            made = dict.fromkeys(kind for types in unfit.values() for kind in types)
            takes = f"the {rank.accelerator} takes {joined([*unit.types])}"
            verb = "makes" if len(unfit) == 1 else "make"
            found = f"{takes}, and {listed([*unfit])} {verb} {joined([*made])}"
            remedy = "quantise the model, or map these layers to a CPU"
            yield unit, Mistake(f"rank {rank.rank} ({rank.key})", found, remedy)


def _other_types(layer: Layer, unit: Accelerator) -> tuple[str, ...]:
    made = dict.fromkeys(tensor.dtype for tensor in layer.outputs)
    return tuple(kind for kind in made if kind not in unit.types and kind not in _OF_SIZES)


def _with_surge(
    planned: Planned,
    usual: Placements,
    surge: _Placed,
    literally: bool,
) -> Planned:
    graph = planned.model.graph
    raise_mistakes(kept(graph, graph.layers, "segments of two routes", "build without --surge"))
    joined = join_ranks(usual, surge.placements)
    plan = planned.plan
    cut, warnings = _cut(planned.model, surge, literally)
    cut = replace(
        cut,
        segments=tuple(
            replace(segment, rank=joined.number[segment.rank]) for segment in cut.segments
        ),
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
            dict.fromkeys(
                (*planned.warnings, *surge.placements.warnings, *joined.warnings, *warnings)
            )
        ),
    )


def plan_mapping(
    model: Model, mapping: LayerMapping, placements: Placements, boards: Platform
) -> Planned:
    """Return the plan for a mapping of a model that was read; the model's hash is left empty.

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    placed = _Placed(mapping, placements, assign(mapping, model.graph))
    model, placed = _with_parts(model, placed)
    planned = _planned(model, placed, None, None, literally=False)
    return _converted(planned, placed, boards, BuildOptions())


def check_can_be_split(model: Model, where: str) -> None:
    """Check that layers of models of this format can be split.

    Raises:
        RankSliceError: they cannot.
    """
    kind = format_of(model.graph)
    if kind.with_made_layers is None:
        found = f"layers of .{kind.name} models cannot be split"
        hint = f"convert the model to .{kind.submodels} first" if kind.submodels else ""
        raise RankSliceError(Mistake(where, found, hint))


def _with_parts(model: Model, placed: _Placed) -> tuple[Model, _Placed]:
    """Return the model with the parts of the layers that a mapping splits."""
    if not placed.assignment.blocks:
        return model, placed
    from rankslice.frontend.rewriting.split import split_layers  # takes its time

    kind = format_of(model.graph)
    check_can_be_split(model, placed.assignment.blocks[0].where)
    assert kind.with_made_layers
    forms = kind.forms(model)
    split = split_layers(model.graph, placed.assignment, forms, kind.channels_last)
    changed: Model = kind.with_made_layers(model, split.graph)
    return changed, placed.rewritten(split)


def _planned(
    loaded: Model,
    placed: _Placed,
    source: str | int | None,
    sink: int | None,
    literally: bool,
) -> Planned:
    """Return the plan; ``source``: where frames enter, a rank or its board."""
    cut, warnings = _cut(loaded, placed, literally)
    placements = placed.placements
    if isinstance(source, str):
        source = _source_rank(cut, placements.ranks, source)
    kind = format_of(loaded.graph)
    info = ModelInfo(loaded.graph.name, sha256="", format=kind.submodels or kind.name)
    plan = make_plan(info, cut, placements.ranks, source_rank=source, sink_rank=sink)
    warnings = (*placed.warnings, *warnings)
    return Planned(loaded, cut, plan, (*placements.warnings, *loaded.graph.warnings, *warnings))


def _cut(loaded: Model, placed: _Placed, literally: bool) -> tuple[Partition, tuple[str, ...]]:
    arrange = Arrangement if literally else format_of(loaded.graph).arrange
    arranged = arrange(loaded.graph, placed.assignment.entry_of)
    ranks = [placed.placements.ranks_of(at) for at in range(len(placed.assignment.layers))]
    cut = in_turns(partition(arranged.graph, arranged.rank_of, group_of=placed.group_of), ranks)
    return cut, tuple(arranged.warnings)


def _source_rank(cut: Partition, placements: Sequence[Rank], board: str) -> int:
    """Return the rank on ``board`` that a frame reaches first."""
    for segment in cut.segments:
        if placements[segment.rank].board == board:
            return segment.rank
    known = sorted({placement.board for placement in placements})
    hint = nearest(board, known) or f"ranks are on {joined(known)}"
    raise RankSliceError(Mistake("--source-board", f"no rank is on board {quoted(board)}", hint))


def read_profile(path: Path) -> Profile:
    """Return the profile in a file.

    Raises:
        RankSliceError: it cannot be read, or is none.
    """
    return profile_from_json(read_text(path, "a profile", _MAX_PROFILE_BYTES), str(path))


def other_model(plan: Plan, profile: Profile, source: str) -> Iterator[Mistake]:
    """Check that a profile belongs to the model of a plan."""
    if profile.model.sha256 != plan.model.sha256:
        same = profile.model.name == plan.model.name
        found = f"is a profile of {'another ' if same else ''}{quoted(profile.model.name)}"
        yield Mistake(source, found, f"profile {quoted(plan.model.name)} as it is now")
        return
    tensors = plan.job.tensors
    if found := profile.model.other_sizes(tensors[name] for name in plan.inputs):
        yield Mistake(source, found, OTHER_SIZES)
