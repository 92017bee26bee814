"""``rankslice build``: model + mapping + platform to a build folder that mpirun can run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rankslice.backend.boards.login import FILE as BOARDS_FILE, logins_to_json
from rankslice.backend.launch.mpirun import check_folder, open_mpi_requirements
from rankslice.backend.package import link_or_copy, write_driver, write_packages
from rankslice.backend.runtime.engines import check_options, engine_settings
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Facts, Rank
from rankslice.backend.wheels import wheels_for
from rankslice.exploration.simulator.schedule import schedule
from rankslice.exploration.times.segment_times import ChosenWeights
from rankslice.framework.engines import ENGINES, computes, default_engine, engines_for
from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.files.hashing import FileHashes, joint_sha256
from rankslice.framework.files.new_folder import new_folder, other_entries, other_maker
from rankslice.framework.graph import AnyTensor
from rankslice.framework.mapping import Mapping as LayerMapping, Placements
from rankslice.framework.plan import FORMAT, Plan
from rankslice.framework.platform import Platform
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.framework.wording import joined, listed, quoted, size_option
from rankslice.frontend.formats import (
    find_format,
    format_of,
    is_saved_model,
    read_model,
    submodel_files,
)
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.model_format import Conversion
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import whole_segment
from rankslice.frontend.plan.make_plan import with_facts
from rankslice.frontend.plan.tables import write_tables
from rankslice.session.build_folder import (
    LINKS,
    OWN_ENTRIES,
    PLAN,
    REFERENCE,
    WITHOUT,
    converted_name,
    with_wires_name,
)
from rankslice.session.building.build_options import BuildOptions as BuildOptions
from rankslice.session.building.planning import (
    Formats,
    MakeMapping,
    Planned,
    place_by_formats,
    plan_model,
)
from rankslice.session.building.replanning import (
    replanning_of,
    survival_record,
    surviving,
    write_survival_files,
)
from rankslice.session.building.representative import SeenBounds, conversion_of, seen_bounds
from rankslice.session.building.wires import conversions_of, find_scales
from rankslice.session.run_folder import living_runs
from rankslice.session.survival import SurvivalRecord, without

_USUAL = BuildOptions()

_LARGE_BYTES = 64_000_000
"""Of a slot: more is worth a warning if the tensor may be smaller."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build folder, complete."""

    folder: Path
    plan: Plan
    packages: tuple[Path, ...]
    """One folder per board."""
    warnings: tuple[str, ...]
    bounds: tuple[tuple[AnyTensor, str], ...] = ()
    """Tensors of the plan with open sizes, and what says how large they can be."""
    weights: tuple[ChosenWeights, ...] = ()
    """Those of ranks in turn that a profile decided."""
    fallbacks: tuple[Build, ...] = ()
    """Those for the loss of a board, in the order of the boards that may be lost."""
    survival: SurvivalRecord | None = None


def build(
    model: Path,
    mapping: Path | LayerMapping | MakeMapping,
    platform: PlatformSource,
    out: Path,
    options: BuildOptions = _USUAL,
    *,
    on_step: Callable[[str], None] = lambda step: None,
) -> Build:
    """Slice a model and write everything that its ranks need.

    Args:
        mapping: accelerators and their layers, in a JSON file or not; or what makes it, such as
            :func:`rankslice.session.building.cut_mapping.mapping_of_cuts`.
        out: the folder to make; it appears complete or not at all.

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    check_folder(Path(os.path.realpath(out)), "choose another --out")
    seen = _seen_bounds(model, options)
    planned = plan_model(
        model,
        mapping,
        platform,
        replace(options, sizes=seen.added_to(options.sizes)),
        where=partial(_place, options.share_cores),
        scales=partial(find_scales, wanted=options.quantisation),
        on_step=on_step,
    )
    if planned.unconverted is not None:
        on_step("measuring conversions")
        wires = conversions_of(planned.unconverted, planned.sent, options.quantisation)
        planned = replace(planned, plan=replace(planned.plan, conversions=wires))
    raise_mistakes(_option_mistakes(planned.plan, planned.platform))
    raise_mistakes(planned.engine_mistakes())
    conversion = conversion_of(planned.model, options.quantisation, has_wires=bool(planned.sent))
    replanning = None
    mappings: dict[str, LayerMapping] = {}
    if options.survive or options.standby:
        replanning = replanning_of(planned, platform, options)
        for board in surviving(planned.plan, planned.platform, options.survive):
            on_step(f"planning without {board}")
            mappings[board] = replanning.mapping([board])
    with new_folder(out, replaces=_foreign if options.force else None) as folder:
        plan, packages = _write(folder, planned, conversion, options, on_step)
        reference = model.resolve()
        if is_saved_model(model):  # the file that it was converted to is removed
            reference = Path(converted_name(planned.plan.model.format))
            link_or_copy(planned.model.path, folder / reference)
        (folder / REFERENCE).symlink_to(reference)
        alone = replace(options, survive=(), standby=False, profile=None, force=False)
        fallbacks = [
            build(
                model,
                without_it,
                platform,
                without(folder, [board]),
                alone,
                on_step=partial(lambda board, step: on_step(f"without {board}: {step}"), board),
            )
            for board, without_it in mappings.items()
        ]
        survival = None
        if replanning is not None:
            plans = {board: done.plan for board, done in zip(mappings, fallbacks, strict=True)}
            survival = survival_record(replanning, plan, plans, options)
            write_survival_files(folder, survival, replanning.platform_file, options)
    bounds = tuple(_bounds(plan, options.sizes, seen))
    warnings = (
        *planned.warnings,
        *planned.cut_warnings(),
        *seen.warnings(plan.job.tensors.values()),
        *_large(bounds),
    )
    result = Build(folder, plan, packages, warnings, bounds, planned.weights, (), survival)
    moved = _moved(result, folder, out)
    return replace(moved, fallbacks=tuple(_moved(done, folder, out) for done in fallbacks))


def _write(
    folder: Path,
    planned: Planned,
    conversion: Conversion,
    options: BuildOptions,
    on_step: Callable[[str], None],
) -> tuple[Plan, tuple[Path, ...]]:
    """Write all but what other boards' loss needs; return the plan with its hash and facts, and the
    packages.
    """
    model, plan, boards = planned.model, planned.plan, planned.platform
    kind = format_of(model.graph)
    with FileHashes() as hashes:
        on_step("writing sub-models")
        digests = [hashes.begin(file) for file in kind.files(model.path)]
        facts = _write_submodels(folder, planned, conversion, hashes, on_step)
        write_tables(folder, plan)
        (folder / BOARDS_FILE).write_text(logins_to_json(boards.boards, plan), encoding="ascii")
        if boards.default_link or boards.links:
            (folder / LINKS).write_text(_links_text(boards), encoding="ascii")
        sha256 = joint_sha256([digest.result() for digest in digests])
        plan = with_facts(replace(plan, model=replace(plan.model, sha256=sha256)), facts)
        on_step("generating the driver")
        write_driver(folder, plan, schedule(plan))
        on_step("packing")
        also = open_mpi_requirements() if options.wheels else []
        packages = write_packages(
            folder,
            plan,
            video=options.video,
            archive=options.archive,
            add_wheels=wheels_for(boards.boards, options.wheels, also),
            hashes=hashes,
        )
    if kind.is_converted or planned.sent:
        on_step("converting the unsliced model")
        name = with_wires_name if planned.sent else converted_name
        path, whole = folder / name(kind.submodels), whole_segment(model.graph)
        write_submodel(submodel_files(model, whole, name=path.name, conversion=conversion), path)
    return plan, packages


def _moved(build: Build, folder: Path, out: Path) -> Build:
    paths = (build.folder, *build.packages)
    place, *packages = (out / path.relative_to(folder) for path in paths)
    return replace(build, folder=place, packages=tuple(packages))


def _links_text(boards: Platform) -> str:
    """Return a platform file, YAML in the form of JSON, with the links between some boards."""
    names: dict[str, object] = {board.name: {} for board in boards.boards}
    return json.dumps({"boards": names, "links": boards.links_section()}, indent=1) + "\n"


def _bounds(plan: Plan, given: GivenSizes, seen: SeenBounds) -> Iterator[tuple[AnyTensor, str]]:
    """Yield the open tensors of a plan, each with what says how large it can be."""
    for tensor in plan.job.tensors.values():
        if tensor.is_open:
            at_most = given.at_most.get(tensor.name, ())
            sizes = zip(tensor.shape or (), at_most, tensor.symbols, strict=False)
            # The model's own bound may be smaller than the one that is given.
            is_given = any(symbol and size == most for size, most, symbol in sizes)
            is_seen = tensor.name in seen.bounds and not at_most
            by_option = is_given or tensor.name in plan.inputs
            yield tensor, "--at-most" if by_option else "frames" if is_seen else "model"


def _large(bounds: Iterable[tuple[AnyTensor, str]]) -> Iterator[str]:
    for tensor, origin in bounds:
        size = tensor.nbytes or 0
        if size > _LARGE_BYTES and origin == "model":
            option = size_option("--at-most", tensor.name, tensor.shape or ())
            yield (
                f"each slot of tensor {quoted(tensor.name)} takes {size / 1e6:.0f} MB: if it never"
                f" is so large, give smaller sizes ({option})"
            )


def _option_mistakes(plan: Plan, boards: Platform) -> Iterator[Mistake]:
    """Yield the options that engines do not have."""
    for rank in {rank.key: rank for route in plan.routes for rank in route.ranks}.values():
        try:
            check_options(rank.engine, engine_settings(rank, exact=False))
        except JobError as error:
            yield Mistake(f"{boards.name}: {rank.key}", str(error))


def _seen_bounds(model: Path, options: BuildOptions) -> SeenBounds:
    """Return the bounds that representative frames show, where these serve no conversion."""
    kind, wanted = find_format(model), options.quantisation
    if wanted.representative is None or kind is None or not kind.shows_bounds:
        return SeenBounds()
    return seen_bounds(
        read_model(model, options.sizes), wanted.representative, wanted.preprocessing
    )


def _foreign(folder: Path) -> str:
    """Return the reason why a folder must not be replaced; empty if it may."""
    if reason := other_maker(folder, PLAN, FORMAT, "build"):
        return reason
    if any(map(living_runs, (folder, *(folder / WITHOUT).glob("*")))):
        return "a run is in progress in it: wait until it ends"
    return other_entries(folder, OWN_ENTRIES.__contains__)


def _place(
    share_cores: bool, mapping: LayerMapping, platform: Platform, formats: Formats
) -> Placements:
    """Place the ranks; refuse engines that cannot run their sub-models."""
    placements = place_by_formats(mapping, platform, formats, share_cores=share_cores)
    raise_mistakes(
        mistake
        for rank, entry in zip(placements.ranks, placements.entries, strict=True)
        for mistake in _unfit_engine(f"{mapping.name}: {rank.key}", rank, formats[entry])
    )
    raise_mistakes(
        Mistake(
            f"{mapping.name}: {rank.key}",
            f"the platform gives the {rank.accelerator} no execution provider",
            "expected one next to the engine, such as `provider: CUDA`",
        )
        for rank in placements.ranks
        if ENGINES[rank.engine].needs_provider and rank.accelerator != "cpu"
        if "provider" not in dict(rank.options)
    )
    return placements


def _unfit_engine(where: str, rank: Rank, formats: Sequence[str]) -> Iterator[Mistake]:
    """Yield why a rank's engine cannot run its sub-models: a CPU rank may have further engines."""
    run = [of for of in formats if rank.engine in (default_engine(of), *engines_for(of))]
    others = [of for of in formats if of not in run]
    if formats and not run:
        fitting = dict.fromkeys(name for of in formats for name in engines_for(of))
        yield Mistake(
            where,
            f"the platform gives the {rank.accelerator} the engine {quoted(rank.engine)}, which"
            + (" runs models of another format" if rank.engine in ENGINES else " is unknown"),
            f"expected {joined([*filter(computes, fitting)], 'or')} for this model",
        )
    elif others and rank.accelerator != "cpu":
        found = f"the engine {quoted(rank.engine)} of the {rank.accelerator} runs no .{others[0]}"
        expected = "map the parts of that format to a rank of their own, or all to a CPU"
        yield Mistake(where, f"{found} sub-models, and its layers are of both formats", expected)


def _write_submodels(
    folder: Path,
    planned: Planned,
    conversion: Conversion,
    hashes: FileHashes,
    on_step: Callable[[str], None],
) -> dict[str, Facts]:
    """Write all sub-models; return the facts about each, by its file."""
    model = planned.model
    facts: dict[str, Facts] = {}
    missing: list[Mistake] = []
    parts = [
        (part, route.ranks[part.rank])
        for cut, route in zip(planned.cuts, planned.plan.routes, strict=True)
        for part in cut.segments
    ]
    # What is hashed last should be small, so that no core waits.
    parts.sort(key=lambda pair: -sum(w.nbytes for layer in pair[0].layers for w in layer.weights))
    written: dict[tuple[tuple[str, ...], ...], str] = {}
    doubtful: set[tuple[tuple[str, ...], ...]] = set()
    for number, (part, rank) in enumerate(parts, 1):
        segment = rank.runs[part.index]
        if format_of(model.graph).is_converted:
            on_step(f"converting sub-model {number} of {len(parts)}")
        path = folder / segment.file
        path.parent.mkdir(exist_ok=True)
        sides = (part.layers, part.inputs, part.outputs)
        content = tuple(tuple(item.name for item in side) for side in sides)
        if content in written:
            link_or_copy(folder / written[content], path)
            facts[segment.file] = facts[written[content]]
        else:
            files = submodel_files(model, part, name=path.name, conversion=conversion)
            write_submodel(files, path)
            facts[segment.file] = files.facts
            if files.is_doubtful:
                doubtful.add(content)
            if files.data is None:  # else the sub-model has its name in it
                written[content] = segment.file
        if content in doubtful:
            from rankslice.session.internals import missing_operator  # loads a format's module

            reason = missing_operator(path, rank, segment.engine)
        else:
            reason = ""
        if reason:
            where = f"{model.path}: rank {rank.rank} ({rank.key})"
            remedy = "map its layer to an accelerator that has it, or convert the model without it"
            missing.append(Mistake(where, f"{listed(content[0])}: {reason}", remedy))
        hashes.begin(path)
    raise_mistakes(missing)
    return facts
